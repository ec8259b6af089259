"""Batched evaluations give what stock Gymnasium gives; rollouts are recorded there all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs.cards import load_card
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.assignments.evaluate import evaluate
from dressage_trainer.evaluation.player import Environments, answer
from dressage_trainer.evaluation.player_pool import SANDBOX, PlayerPool
from dressage_trainer.lease.compiled import CompiledCache

from tests.unit.trainer.assignment_contexts import lease

SEEDS = [4, 2, 2**33, 2]


def request(env_id: str, name: str, folder, **changes):
    spec = PolicySpec.of(name, load_card(env_id))
    rng, size = np.random.default_rng(5), kind(name).size(spec)
    choices = kind(name).choices(spec)
    vector = rng.integers(choices, size=size) if choices else rng.standard_normal(size).astype(np.float32)
    plain = {"environment": env_id, "options": {"max_episode_steps": 40}, "seeds": SEEDS, "recorded": 0}
    return {**plain, "policy": spec.to_dict(), "parameters": vector.astype(float), "folder": str(folder), **changes}


@pytest.mark.parametrize(
    ("env_id", "name"), [("CartPole-v1", "linear"), ("FrozenLake-v1", "table"), ("Swimmer-v5", "linear")]
)
def test_a_batched_reply_is_the_stock_reply_with_its_rollouts(env_id, name, tmp_path):
    environments = Environments()
    batched = answer(request(env_id, name, tmp_path, batched=True, recorded=2), environments)
    assert environments._engines
    plain = answer(request(env_id, name, tmp_path / "plain"), Environments())
    for column in ("returns", "lengths", "successes"):
        np.testing.assert_array_equal(batched[column], plain[column])
        assert batched[column].dtype == plain[column].dtype
    recorded = [Trajectory.load(path) for path in batched["paths"]]
    assert [one.seed for one in recorded] == SEEDS[:2]
    # Files keep single precision.
    np.testing.assert_allclose([one.stock_return for one in recorded], plain["returns"][:2], rtol=1e-5)


def test_engines_are_kept_and_bounded(tmp_path):
    environments = Environments()
    for seeds in ([1], [2], [3], [4], [5], [5]):
        answer(request("Maze3x3-v0", "table", tmp_path, batched=True, seeds=seeds), environments)
    assert len(environments._engines) == 4


def test_an_environment_without_an_engine_is_played_on_stock(tmp_path, monkeypatch):
    monkeypatch.setattr("dressage_trainer.evaluation.player.episode_engine", lambda *_: None)
    batched = answer(request("CartPole-v1", "linear", tmp_path, batched=True), Environments())
    plain = answer(request("CartPole-v1", "linear", tmp_path), Environments())
    np.testing.assert_array_equal(batched["returns"], plain["returns"])


def test_numbers_that_the_kind_refuses_are_refused(tmp_path):
    bad = request("Maze3x3-v0", "table", tmp_path, batched=True)
    bad["parameters"][3] = 0.5
    with pytest.raises(InvalidArgument, match="entry 3"):
        answer(bad, Environments())


@pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")
async def test_a_batched_assignment_is_played_by_compiled_kernels(tmp_path):
    tmp_path.chmod(0o700)
    assignment = pb.Assignment(id=1, cores=2)
    work = assignment.evaluate
    work.environment, work.policy.kind, work.batched, work.kept_rollouts = "Maze3x3-v0", "table", True, 1
    work.seeds.extend(SEEDS)
    for name, cell in (("good", 1.0), ("poor", 0.0), ("bad", 9.0)):
        values = [cell, 3.0, 3.0, 2.0, 1.0, 0.0, 2.0, 2.0, 0.0]
        work.candidates.add(id=name, parameters=pb.Parameters(values=values))
    async with lease(tmp_path) as context:
        sandboxes = context(assignment).sandboxes
        compiled = CompiledCache(tmp_path / "cache", sandboxes)
        players = PlayerPool(sandboxes, compiled.with_kernels(SANDBOX))
        now = replace(context(assignment), compiled=compiled, players=players)
        try:
            result = await evaluate(now)
        finally:
            await players.close()
        seen = {item.removeprefix("candidate/"): report.candidate for item, report in now.work.items().items()}
    assert (compiled.kernels / "Maze3x3-v0.ready").exists()
    assert result.evaluate.episodes == 8
    assert list(seen["good"].returns) == [1 - 3 * 0.1 / 9] * 4 and list(seen["good"].lengths) == [4] * 4
    assert list(seen["poor"].lengths) == [100] * 4 and len(seen["poor"].rollouts) == 1
    assert seen["bad"].failure.message.startswith("candidates[2].parameters.values")
