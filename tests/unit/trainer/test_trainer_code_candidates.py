"""Code candidates: they play as stock Gymnasium does, fail alone, and leave rollouts, texts and bundles."""

from __future__ import annotations

import asyncio
import time

import gymnasium
import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs.trajectory import Trajectory
from dressage.policies import CodePolicy, load_code
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.assignments import code_candidates
from dressage_trainer.assignments.evaluate import evaluate

from tests.unit.contracts.test_contracts_policy import policy
from tests.unit.trainer.assignment_contexts import lease
from tests.unit.trainer.test_trainer_evaluate import GOOD, one, seen

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

SEEDS = (11, 5, 900)
BALANCE = policy("return int(obs[2] + 0.3 * obs[3] > 0)")
# Counts its own steps: an instance for each episode, or the counts would be wrong.
SWING = policy("self.n += 1\n        return [np.sin(0.3 * self.n + i) * 1.5 for i in range(3)]", reset="self.n = 0")
THIRD = """
class Policy:
    STARTED = []

    def reset(self):
        self.place = len(self.STARTED)
        self.STARTED.append(self.place)

    def act(self, obs):
        if self.place == 2:
            raise ValueError("third")
        return 0
"""
FEEDBACK = """
class Feedback:
    def summarize_trajectory(self, observations):
        return f"{len(observations) - 1} steps from {observations[0].sum():.6f} to {observations[-1].sum():.6f}"
"""


def assignment_of(*sources, environment="CartPole-v1", seeds=SEEDS, cores=2, **fields) -> pb.Assignment:
    assignment = pb.Assignment(id=1, cores=cores)
    work = assignment.evaluate
    work.environment = environment
    work.seeds.extend(seeds)
    for name, source in zip("abcdefghij", sources, strict=False):
        work.candidates.add(id=name, **(source if isinstance(source, dict) else {"code": source}))
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            getattr(work, name).extend(value)
        elif name == "code_limits":
            work.code_limits.CopyFrom(value)
        else:
            setattr(work, name, value)
    return assignment


def stock(source, environment, seeds=SEEDS):
    """Return returns, lengths and observations of Gymnasium's own loop; the source runs in this process, as it is ours."""
    scope, env, results = {}, gymnasium.make(environment), []
    exec(source, scope)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    for seed in seeds:
        chosen = scope["Policy"]()
        chosen.reset()
        observation, _ = env.reset(seed=seed)
        rewards, rows, ended = [], [np.float64(observation)], False
        while not ended:
            action = chosen.act(np.float64(observation))
            if not discrete:
                action = np.clip(action, env.action_space.low, env.action_space.high).astype(np.float32)
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            rows.append(np.float64(observation))
            ended = terminated or truncated
        results.append((float(np.sum(rewards)), len(rewards), np.array(rows)))
    returns, lengths, observations = zip(*results, strict=True)
    return list(returns), list(lengths), list(observations)


async def test_code_plays_stock_gymnasium_step_by_step(tmp_path):
    returns, lengths, observations = stock(SWING, "Hopper-v5")
    for cores in (1, 3):
        assignment = assignment_of(
            SWING,
            environment="Hopper-v5",
            cores=cores,
            feedback_source=FEEDBACK,
            kept_rollouts=1,
            kept=["best", "worst"],
        )
        result, candidates = await one(tmp_path / str(cores), assignment)
        candidate = candidates["a"]
        assert seen(candidate) == (returns, lengths) and 0 < candidate.act_seconds < 1
        assert (result.evaluate.episodes, result.evaluate.env_steps) == (3, sum(lengths))
        texts = [f"{len(rows) - 1} steps from {rows[0].sum():.6f} to {rows[-1].sum():.6f}" for rows in observations]
        assert list(candidate.feedback) == texts and not candidate.HasField("feedback_failure")
        kept = {(rollout.label, rollout.seed) for rollout in candidate.rollouts}
        best, worst = int(np.argmax(returns)), int(np.argmin(returns))
        assert kept == {("best", SEEDS[best]), ("worst", SEEDS[worst]), ("first", SEEDS[0])}
        for rollout in candidate.rollouts:
            place = SEEDS.index(rollout.seed)
            trajectory = Trajectory.load(tmp_path / str(cores) / "store" / rollout.artifact)
            assert getattr(rollout, "return") == returns[place]
            assert np.array_equal(trajectory.observation, observations[place].astype(np.float32))


@pytest.mark.parametrize("steps_at_once", [1, 1_000])
async def test_batches_in_one_process_play_as_stock_gymnasium(steps_at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(code_candidates, "_STEPS_AT_ONCE", steps_at_once)
    returns, lengths, _ = stock(BALANCE, "CartPole-v1")
    _, candidates = await one(tmp_path, assignment_of(BALANCE, THIRD, cores=1, kept=["best"]))
    assert seen(candidates["a"]) == (returns, lengths)
    assert len(candidates["a"].rollouts) == 1
    # Its class counts the episodes, so that one process must have played all three.
    assert f"(in the episode of seed {SEEDS[2]})" in candidates["b"].failure.message


async def test_code_bundles_are_stored_and_play_as_candidates(tmp_path):
    assignment = assignment_of(BALANCE, bundles=True)
    assignment.evaluate.provenance["round"] = "3"
    _, candidates = await one(tmp_path, assignment)
    assert candidates["a"].policy == "candidates/a/policy"
    stored = load_code(tmp_path / "store/candidates/a/policy")
    assert stored.source == BALANCE and stored.provenance == {"round": "3"} and stored.environment == "CartPole-v1"
    CodePolicy(
        source=BALANCE, environment="Hopper-v5", observation_size=11, action_low=(-1.0,) * 3, action_high=(1.0,) * 3
    ).save(tmp_path / "store/hopper")
    (tmp_path / "store/hopper/../damaged").mkdir()
    (tmp_path / "store/damaged/card.json").write_text('{"kind": "code"}')
    (tmp_path / "store/damaged/policy.py").write_text(BALANCE)
    names = ("candidates/a/policy", "hopper", "damaged")
    again = assignment_of(*(dict(bundle=pb.PolicyRef(bundle=name)) for name in names))
    _, played = await one(tmp_path, again)
    assert seen(played["a"]) == seen(candidates["a"]) == stock(BALANCE, "CartPole-v1")[:2]
    assert played["b"].failure.message.startswith("candidates[1].bundle: invalid value (got 'a policy of Hopper-v5")
    assert played["c"].failure.message.startswith("candidates[2].bundle.bundle: card.json format, kind")


@pytest.mark.timeout(300)
async def test_bad_candidates_fail_alone_and_block_nobody(tmp_path):
    sources = [
        policy("while True: pass"), BALANCE, policy("return [][1]"), policy("return 5"),
        policy(start="raise KeyError('x')"), policy("return np.ones(10**11)"), "import gymnasium\n" + BALANCE, BALANCE,
    ]  # fmt: skip
    begin = time.monotonic()
    limits = pb.CodeLimits(act_seconds=2.0)
    result, candidates = await one(tmp_path, assignment_of(*sources, code_limits=limits, kept_rollouts=1))
    assert time.monotonic() - begin < 120
    expected = stock(BALANCE, "CartPole-v1")[:2]
    assert [seen(candidates[name]) for name in "bh"] == [expected, expected]
    assert result.evaluate.episodes == 6
    reasons = {name: candidates[name].failure.reason for name in "acdefg"}
    assert reasons == {
        "a": "POLICY_TOO_SLOW", "c": "POLICY_RAISED", "d": "POLICY_BAD_ACTION", "e": "POLICY_RAISED",
        "f": "POLICY_OUT_OF_MEMORY", "g": "POLICY_INVALID",
    }  # fmt: skip
    assert "line 9" in candidates["f"].failure.message and "KeyError: 'x'" in candidates["e"].failure.message
    assert "(in the episode of seed " in candidates["d"].failure.message
    assert not candidates["a"].returns and not candidates["a"].rollouts


async def test_feedback_that_fails_leaves_the_candidate_its_score(tmp_path):
    source = "class Feedback:\n    def summarize_trajectory(self, observations):\n        return observations[10**6]\n"
    _, candidates = await one(tmp_path, assignment_of(BALANCE, feedback_source=source))
    failure = candidates["a"].feedback_failure
    assert failure.reason == "FEEDBACK_RAISED" and "line 3" in failure.message and "IndexError" in failure.message
    assert len(candidates["a"].returns) == 3 and not candidates["a"].HasField("failure")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(code_limits=pb.CodeLimits(act_seconds=-1.0)),
            "code_limits.act_seconds: must be greater than or equal to 0 and",
        ),
        (dict(code_limits=pb.CodeLimits(candidate_seconds=float("nan"))), "code_limits.candidate_seconds: must be"),
        (
            dict(kept=["best"], seeds=range(99_999), environment="Humanoid-v5"),
            "kept: invalid value (got '99999000 steps')",
        ),
    ],
)
async def test_an_assignment_with_bad_limits_is_refused(changes, message, tmp_path):
    result, candidates = await one(tmp_path, assignment_of(BALANCE, **changes))
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT and not candidates
    assert result.failure.failure.message.startswith(message)


async def test_code_that_is_interrupted_leaves_no_process(tmp_path):
    async with lease(tmp_path) as context:
        now = context(assignment_of(policy("sum(range(10**6)); return 0"), seeds=range(50), cores=1))
        serving = asyncio.ensure_future(evaluate(now))
        while not any(player.busy and player._process for player in now.players._all):
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        now.cancelled.set()
        assert await asyncio.wait_for(serving, 30) is None and not now.work.items()
        for _ in range(500):
            # A player that had answered when the code was ended is kept for the next assignment.
            idle = {player._process.scratch for player in now.players._idle if player._process}
            if set((tmp_path / "sandboxes").iterdir()) == idle:
                break
            await asyncio.sleep(0.02)
        assert set((tmp_path / "sandboxes").iterdir()) == idle
        again = await evaluate(context(assignment_of({"parameters": pb.Parameters(values=GOOD)}, BALANCE)))
        assert again.failure.failure.message.startswith("policy.kind")
    assert list((tmp_path / "sandboxes").iterdir()) == []
