"""Evaluations of candidates: stock Gymnasium's episodes, each candidate for itself, on players that stay warm."""

from __future__ import annotations

import asyncio
import math

import gymnasium
import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs import adding, load_card
from dressage.envs.trajectory import Trajectory
from dressage.errors import Internal
from dressage.policies import Policy, load, save_bundle
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.assignments.candidate_files import episodes_by_label
from dressage_trainer.assignments.evaluate import evaluate
from dressage_trainer.evaluation.player import Environments, answer
from dressage_trainer.evaluation.player_pool import Player
from dressage_trainer.lease.sandboxes import Sandboxes

from tests.unit.envs.test_envs_stock_player import Goal
from tests.unit.trainer.assignment_contexts import lease

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

SEEDS = (11, 5, 900)
GOOD, BAD = [0.0, -0.1, -1.0, -1.0, 0.0, 0.1, 1.0, 1.0], [0.0] * 8
UNSTEADY = [0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def assignment_of(*proposals, number=1, environment="CartPole-v1", seeds=SEEDS, cores=2, **fields) -> pb.Assignment:
    """Return an assignment whose candidates are named a, b, c, ….

    :param proposals: lists of parameters, or the one field of a `Candidate` as a dict.
    """
    assignment = pb.Assignment(id=number, cores=cores)
    work = assignment.evaluate
    work.environment, work.policy.kind = environment, "linear"
    work.seeds.extend(seeds)
    for name, proposal in zip("abcdefghij", proposals, strict=False):
        plain = proposal if isinstance(proposal, dict) else {"parameters": pb.Parameters(values=proposal)}
        work.candidates.add(id=name, **plain)
    for name, value in fields.items():
        owner, _, field = name.rpartition("__")
        if isinstance(value, list):
            getattr(work, field).extend(value)
        else:
            setattr(getattr(work, owner) if owner else work, field, value)
    return assignment


def linear(environment, parameters) -> Policy:
    spec = PolicySpec.of("linear", load_card(environment), bias=False)
    weights = kind("linear").weights(spec, parameters)
    return Policy(weights=weights, card=kind("linear").card(spec, environment=environment))


def stock(policy, environment="CartPole-v1", seeds=SEEDS):
    """Return returns and lengths of Gymnasium's own loop."""
    env, returns, lengths = gymnasium.make(environment), [], []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        rewards, ended = [], False
        while not ended:
            action = policy.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action if action.ndim else int(action))
            rewards.append(reward)
            ended = terminated or truncated
        returns.append(float(np.sum(rewards)))
        lengths.append(len(rewards))
    return returns, lengths


def seen(candidate):
    return list(candidate.returns), list(candidate.lengths)


async def one(folder, assignment):
    """The result of one assignment, and its candidates' results by id."""
    async with lease(folder) as context:
        now = context(assignment)
        result = await evaluate(now)
        return result, {item.removeprefix("candidate/"): report.candidate for item, report in now.work.items().items()}


async def test_candidates_play_stock_gymnasium_whatever_the_cores(tmp_path):
    expected = {"a": stock(linear("CartPole-v1", GOOD)), "b": stock(linear("CartPole-v1", BAD))}
    assert max(expected["a"][0]) > 100 > max(expected["b"][0])
    for cores in (1, 2, 5):
        result, candidates = await one(tmp_path / str(cores), assignment_of(GOOD, BAD, cores=cores))
        assert {name: seen(candidate) for name, candidate in candidates.items()} == expected
        assert result.evaluate.episodes == 6
        assert result.evaluate.env_steps == sum(sum(lengths) for _, lengths in expected.values())
        assert not candidates["a"].successes and not candidates["a"].rollouts and candidates["a"].id == "a"


async def test_a_stored_bundle_plays_as_itself_and_its_rollouts_are_kept(tmp_path):
    parameters = np.linspace(-1, 1, 33)
    policy = linear("Hopper-v5", parameters)
    for place in ("sessions/s1/assignments/7/members/m/policy", "own/policy"):
        save_bundle(tmp_path / "store" / place, weights=policy.weights, card=policy.description)
    bundles = [
        dict(bundle=pb.PolicyRef(bundle=key)) for key in ("sessions/s1/assignments/7/members/m/policy/", "own/policy")
    ]
    assignment = assignment_of(*bundles, environment="Hopper-v5", kept_rollouts=2, cores=4)  # two parts each
    assignment.evaluate.ClearField("policy")
    _, candidates = await one(tmp_path, assignment)
    expected = stock(policy, "Hopper-v5")
    assert [seen(candidates[name]) for name in "ab"] == [expected, expected]
    for name, candidate in candidates.items():
        assert [rollout.seed for rollout in candidate.rollouts] == list(SEEDS[:2])
        for rollout, total in zip(candidate.rollouts, expected[0], strict=False):
            assert rollout.artifact == f"candidates/{name}/rollouts/{rollout.seed}.npz"
            trajectory = Trajectory.load(tmp_path / "store" / rollout.artifact)
            assert (getattr(rollout, "return"), trajectory.seed) == (total, rollout.seed)
            assert trajectory.stock_return == pytest.approx(total, rel=1e-6)  # files are in single precision


async def test_rollouts_are_kept_by_their_returns(tmp_path):
    seeds = range(40, 47)
    for kept_rollouts in (0, 2):
        assignment = assignment_of(UNSTEADY, seeds=seeds, kept_rollouts=kept_rollouts)
        assignment.evaluate.kept.extend(["best", "worst", "median", "nearest_mean"])
        folder = tmp_path / str(kept_rollouts)
        result, candidates = await one(folder, assignment)
        returns = np.array(stock(linear("CartPole-v1", UNSTEADY), seeds=seeds)[0])
        assert list(candidates["a"].returns) == returns.tolist() and len(set(returns)) > 3
        expected = {
            "best": returns.argmax(),
            "worst": returns.argmin(),
            "median": np.abs(returns - np.median(returns)).argmin(),
            "nearest_mean": np.abs(returns - returns.mean()).argmin(),
        }
        rollouts = candidates["a"].rollouts
        assert [rollout.label for rollout in rollouts] == ["first"] * kept_rollouts + list(expected)
        for rollout, index in zip(rollouts, [*range(kept_rollouts), *expected.values()], strict=True):
            assert rollout.seed == seeds[index] and getattr(rollout, "return") == returns[index]
            trajectory = Trajectory.load(folder / "store" / rollout.artifact)
            assert (trajectory.seed, trajectory.stock_return) == (rollout.seed, returns[index])
        stored = {path.name for path in (folder / "store/candidates/a/rollouts").iterdir()}
        assert stored == {f"{rollout.seed}.npz" for rollout in rollouts}
        # A recording of an episode that was played is no further episode.
        assert result.evaluate.episodes == len(seeds) and result.evaluate.env_steps == returns.sum()


@pytest.mark.parametrize(
    ("returns", "chosen"),
    [
        ([3.0, 1.0, 2.0], (1, 2, 0, 2)),
        ([1.0, 1.0, 1.0], (0, 0, 0, 0)),
        ([0.0, 4.0, 4.0, 0.0], (0, 0, 1, 0)),  # both are 2 from the median and the mean: the first
        ([0.0, 1.0, 2.0, 100.0], (0, 1, 3, 2)),
        ([5.0], (0, 0, 0, 0)),
        ([math.nan, 1.0], (1, 0, 1, 0)),
    ],
)
def test_of_equal_returns_the_first_is_kept(returns, chosen):
    assert tuple(episodes_by_label(("worst", "median", "best", "nearest_mean"), returns).values()) == chosen


@pytest.mark.parametrize(("kind_", "size"), [("linear", 8), ("projected_mlp", 10), ("mlp", 23)])
async def test_the_bundle_of_a_candidate_acts_as_the_candidate(tmp_path, kind_, size):
    runtime = pytest.importorskip("onnxruntime")
    parameters = np.random.default_rng(3).standard_normal(size).tolist()
    assignment = assignment_of(parameters, bundles=True, policy__kind=kind_)
    assignment.evaluate.policy.hidden_sizes.extend(
        [] if kind_ == "linear" else [4] if kind_ == "projected_mlp" else [3]
    )
    assignment.evaluate.policy.latent_sizes.extend([5, 5] if kind_ == "projected_mlp" else [])
    assignment.evaluate.provenance["intent"] = "balance"
    _, candidates = await one(tmp_path, assignment)
    assert candidates["a"].policy == "candidates/a/policy" and not candidates["a"].HasField("failure")
    folder = tmp_path / "store/candidates/a/policy"
    policy = load(folder)
    assert policy.card["provenance"]["intent"] == "balance" and policy.card["provenance"]["candidate"] == "a"
    assert seen(candidates["a"]) == stock(policy)
    rows = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)
    session = runtime.InferenceSession(str(folder / "policy.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(["action"], {"observation": rows})[0], policy.act(rows))
    # It is a candidate like any other.
    again = assignment_of(dict(bundle=pb.PolicyRef(bundle="candidates/a/policy")), number=2, bundles=True)
    _, repeated = await one(tmp_path, again)
    assert seen(repeated["a"]) == seen(candidates["a"]) and not repeated["a"].policy


async def test_finished_candidates_are_not_repeated(tmp_path):
    assignment = assignment_of(GOOD, BAD, BAD)
    assignment.finished_items.extend(["candidate/a", "candidate/c"])
    result, candidates = await one(tmp_path, assignment)
    assert list(candidates) == ["b"] and result.evaluate.episodes == 3


async def test_a_candidate_that_cannot_be_played_fails_alone(tmp_path):
    mismatched = linear("Hopper-v5", np.zeros(33))
    save_bundle(tmp_path / "store/hopper", weights=mismatched.weights, card=mismatched.description)
    (tmp_path / "store/damaged").mkdir()
    (tmp_path / "store/damaged/card.json").write_text("{}")
    (tmp_path / "store/damaged/policy.safetensors").write_bytes(b"no tensors")
    proposals = [
        dict(code="class Policy: pass"), dict(program="x > 0"), dict(), [1.0] * 7, [1.0] * 7 + [math.nan], GOOD,
        dict(bundle=pb.PolicyRef(bundle="hopper")), dict(bundle=pb.PolicyRef(bundle="damaged")),
        dict(bundle=pb.PolicyRef(bundle="nowhere")), dict(bundle=pb.PolicyRef(bundle="../secrets")),
    ]  # fmt: skip
    result, candidates = await one(tmp_path, assignment_of(*proposals))
    assert seen(candidates["f"]) == stock(linear("CartPole-v1", GOOD)) and not candidates["f"].HasField("failure")
    assert result.evaluate.episodes == 3
    messages = {name: candidate.failure.message for name, candidate in candidates.items() if name != "f"}
    expected = {
        "a": "the policy: [signature] line 1: Policy has no method act",
        "b": "candidates[1].program: invalid value (got '5 characters of program'); expected a bundle, parameters or code",
        "c": "candidates[2]: invalid value (got None); expected a proposal",
        "d": "candidates[3].parameters.values: invalid value (got '7 numbers'); expected 8 numbers",
        "e": "candidates[4].parameters.values[7]: invalid value (got nan); expected a finite number",
        "g": "candidates[6].bundle: invalid value (got 'a policy of Hopper-v5 with 11 observations'); expected a policy for "
        "CartPole-v1",
        "h": "candidates[7].bundle.bundle: card.json format",
        "i": "candidates[8].bundle.bundle: ",
        "j": "candidates[9].bundle.bundle: key: invalid value (got '../secrets'",
    }
    assert {name: messages[name][: len(text)] for name, text in expected.items()} == expected
    assert (
        candidates["b"].failure.reason == "CANDIDATE_UNSUPPORTED" and candidates["a"].failure.reason == "POLICY_INVALID"
    )
    assert candidates["d"].failure.remedy


async def test_a_value_beyond_single_precision_is_refused(tmp_path):
    _, candidates = await one(tmp_path, assignment_of([1e300] + [0.0] * 7))
    assert candidates["a"].failure.message.startswith("candidates[0].parameters.values: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(environment="CartPool-v1"),
            "environment: unknown environment 'CartPool-v1'; did you mean CartPole-v1? known environments: CartPole-v1",
        ),
        (dict(policy__kind="cubic"), "policy.kind: invalid value (got 'cubic'); expected one of mlp, linear"),
        (
            dict(policy__kind="table"),
            "policy.kind: invalid value (got 'table'); expected linear, mlp, random_features or projected_mlp for",
        ),
        (dict(seeds=()), "seeds: must contain at least 1 item(s)"),
        (dict(seeds=(3, -1)), "seeds[1]: must be greater than or equal to 0 (got -1)"),
        (
            dict(kept=["first"]),
            "kept[0]: invalid value (got 'first'); expected one of worst, median, best, nearest_mean",
        ),
        (dict(kept=["best", "best"]), "kept: repeated value must contain unique items"),
        (dict(kept_rollouts=-1), "kept_rollouts: must be greater than or equal to 0 (got -1)"),
        (
            dict(options__reset_noise_scale=0.5),
            "options.reset_noise_scale: invalid value (got 0.5); expected an option of CartPole-v1",
        ),
    ],
)
async def test_a_bad_assignment_is_refused_as_a_whole(changes, message, tmp_path):
    result, candidates = await one(tmp_path, assignment_of(GOOD, **changes))
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT
    assert result.failure.failure.message.startswith(message) and not candidates


async def test_candidates_need_unique_ids(tmp_path):
    unique, pattern = "candidates: ids of candidates must be unique", "candidates[1].id: "
    for ids, message in ((("a", "a"), unique), (("a", "../b"), pattern), (("a", ""), pattern)):
        assignment = assignment_of(GOOD, GOOD)
        for candidate, name in zip(assignment.evaluate.candidates, ids, strict=True):
            candidate.id = name
        result, candidates = await one(tmp_path, assignment)
        assert result.failure.failure.message.startswith(message)
        assert not candidates


async def test_players_stay_warm_from_one_assignment_to_the_next(tmp_path):
    async with lease(tmp_path) as context:
        pids, expected = set(), stock(linear("CartPole-v1", GOOD))
        for number, environment in enumerate(["CartPole-v1", "InvertedPendulum-v5", "CartPole-v1"]):
            parameters = GOOD if environment == "CartPole-v1" else [0.1] * 4
            now = context(assignment_of(parameters, number=number, environment=environment, cores=1))
            await evaluate(now)
            (player,) = now.players._idle
            pids.add(player._process.pid)
            if environment == "CartPole-v1":
                assert seen(now.work.reports[-1].candidate) == expected
        assert len(pids) == 1


async def test_a_player_that_dies_blames_the_machine_and_the_next_one_plays(tmp_path):
    async with lease(tmp_path) as context:
        await evaluate(context(assignment_of(GOOD, cores=1)))
        now = context(
            assignment_of([0.0] * 4, number=2, environment="InvertedPendulum-v5", seeds=range(20_000), cores=1)
        )
        serving = asyncio.ensure_future(evaluate(now))
        (player,) = now.players._all
        while not player.busy:
            await asyncio.sleep(0.01)
        player._process.kill()
        result = await asyncio.wait_for(serving, 60)
        assert result.failure.cause == pb.AssignmentFailure.CAUSE_INFRASTRUCTURE
        result = await evaluate(context(assignment_of(GOOD, number=3)))
        assert result.evaluate.episodes == 3


@pytest.mark.parametrize("event", ["terminate", "cancelled"])
async def test_an_interrupted_evaluation_ends_at_once_and_keeps_what_it_reported(event, tmp_path):
    async with lease(tmp_path) as context:
        assignment = assignment_of(BAD, [0.0] * 8, cores=1, seeds=range(100_000))
        assignment.evaluate.candidates[1].CopyFrom(pb.Candidate(id="b", program="x"))
        assignment.evaluate.candidates.reverse()
        now = context(assignment)
        serving = asyncio.ensure_future(evaluate(now))
        while not any(player.busy for player in now.players._all):
            await asyncio.sleep(0.01)
        (player,) = now.players._all
        process = player._process
        getattr(now, event).set()
        assert await asyncio.wait_for(serving, 20) is None
        assert list(now.work.items()) == ["candidate/b"]
        # The player that was at work is not given to the next assignment, which is served all the same.
        assert process.wait(10) is not None
        assert (await evaluate(context(assignment_of(BAD, number=2)))).evaluate.episodes == 3


def test_successes_are_the_environments_own(tmp_path, monkeypatch):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path))
    gymnasium.register("DressageGoal-v0", entry_point=Goal, max_episode_steps=10)
    environment = adding.add_registered("gymnasium:DressageGoal-v0").id
    spec = PolicySpec.of("linear", load_card(environment), bias=False)
    request = {
        "environment": environment, "options": {}, "seeds": [1, 2, 4], "recorded": 1, "folder": str(tmp_path / "r"),
        "policy": spec.to_dict(), "parameters": np.zeros(2),
    }  # fmt: skip
    reply = answer(request, Environments())
    assert reply["successes"].tolist() == [0, 1, 1] and len(reply["paths"]) == 1
    stored = {**reply, "paths": []}
    checked = Player(Sandboxes(tmp_path))._parse_reply(
        stored, {**request, "recorded": 0}, scratch=tmp_path, target=tmp_path
    )
    assert checked.successes == (False, True, True) and checked.lengths == (3, 3, 3)


def test_a_player_that_ends_while_its_process_starts_leaves_none(tmp_path):
    started = []

    class Late(Sandboxes):
        def start(self, *arguments, **options):
            process = super().start(*arguments, **options)
            started.append(process)
            player.end()
            return process

    player = Player(Late(tmp_path))
    with pytest.raises(Internal, match="has ended with its assignment"), player.conversation():
        pass
    assert started[0].poll() is not None and not started[0].scratch.exists()
