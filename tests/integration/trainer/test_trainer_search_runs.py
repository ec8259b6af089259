"""Searches and evaluations by a real trainer process over gRPC: ended in all ways, they end in the same result."""

from __future__ import annotations

import signal
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import gymnasium
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.sandbox.capabilities import capabilities
from dressage_trainer import checkpoints
from run_service import FakeRunService

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")


def search(
    *, number=1, cores=1, budget=2_000, seed=1, episodes=5, checkpoint_seconds=1e9, algorithm="random", **fields
) -> pb.Assignment:
    work = pb.SearchAssignment(
        environment="CartPole-v1", algorithm=algorithm, budget=budget, episodes=episodes, seed=seed, episode_seed=1_000,
        checkpoint_seconds=checkpoint_seconds, **fields,
    )  # fmt: skip
    work.policy.kind = "linear"
    return pb.Assignment(id=number, cores=cores, search=work)


def evaluate(*parameters, number=1, seeds=(1,), cores=1, environment="CartPole-v1") -> pb.Assignment:
    assignment = pb.Assignment(id=number, cores=cores)
    assignment.evaluate.environment, assignment.evaluate.policy.kind = environment, "linear"
    assignment.evaluate.seeds.extend(seeds)
    for index, values in enumerate(parameters):
        assignment.evaluate.candidates.add(id=f"c{index}", parameters=pb.Parameters(values=values))
    return assignment


def undisturbed(folder, assignment) -> tuple[pb.Report, dict]:
    """The result of a search, and all that was accepted."""
    with FakeRunService(folder / "store", assignment) as service:
        trainer = service.start_trainer(folder / "scratch")
        _, report = service.wait_for("result")
        assert trainer.wait(60) == 0
        return report.result.search, dict(service.accepted)


def improvements(accepted) -> list[tuple[int, float, list[float]]]:
    reports = [report.improvement for report in accepted.values() if report.WhichOneof("body") == "improvement"]
    ordered = sorted(reports, key=lambda one: one.improvement.evaluated)
    return [(one.improvement.evaluated, one.improvement.score, list(one.parameters.values)) for one in ordered]


@pytest.mark.timeout(300)
def test_a_search_has_the_same_result_after_kills_and_on_more_cores(tmp_path):
    expected, accepted = undisturbed(tmp_path / "whole", search(budget=10_000))
    assert expected.evaluated == 10_000 and expected.episodes == 50_000 and expected.best_score >= 475
    streamed = improvements(accepted)
    assert [(number, score) for number, score, _ in streamed] == [
        (one.evaluated, one.score) for one in expected.improvements
    ]
    assert streamed[-1][2] == list(expected.best_parameters)
    assert undisturbed(tmp_path / "cores", search(budget=10_000, cores=2))[0] == expected

    # The state is stored as often as it can be. Two attempts are killed once they stored one; the third gets to the end.
    with FakeRunService(tmp_path / "store", search(budget=10_000, checkpoint_seconds=1e-9)) as service:
        stored = [0]
        for attempt in (1, 2, 3):
            trainer = service.start_trainer(tmp_path / f"scratch-{attempt}", attempt=attempt)
            if attempt < 3:
                _, report = service.wait_for("checkpoint", timeout=60)
                trainer.send_signal(signal.SIGKILL)
                assert trainer.wait(30) == -9
                stored.append(report.checkpoint.update)
        service.wait_for("result")
        assert trainer.wait(60) == 0
        assert 0 < stored[1] < stored[2] < 10_000 and service.sent[-1].checkpoint
        assert service.accepted[1, "result"].result.search == expected
        assert improvements(service.accepted) == streamed
        assert not service.repeated


@pytest.mark.timeout(300)
@pytest.mark.parametrize("algorithm", ["hill_climb", "cma_es"])
def test_a_search_that_learns_has_the_same_result_after_a_kill(tmp_path, algorithm):
    options = dict(algorithm=algorithm, budget=1_000, range=4.0, step_size=0.3)
    expected, accepted = undisturbed(tmp_path / "whole", search(cores=2, **options))
    assert expected.evaluated == 1_000 and max(map(abs, expected.best_parameters)) <= 4.0
    with FakeRunService(tmp_path / "store", search(checkpoint_seconds=1e-9, **options)) as service:
        trainer = service.start_trainer(tmp_path / "first")
        _, report = service.wait_for("checkpoint", timeout=120)
        trainer.send_signal(signal.SIGKILL)
        assert trainer.wait(30) == -9 and 0 < report.checkpoint.update < 1_000
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        service.wait_for("result", timeout=120)
        assert trainer.wait(60) == 0 and service.sent[-1].checkpoint
        assert service.accepted[1, "result"].result.search == expected
        assert improvements(service.accepted) == improvements(accepted) and not service.repeated


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_interrupted_baseline_restarts_and_ends_in_the_same_result(tmp_path):
    pytest.importorskip("stable_baselines3")

    def baseline():
        assignment = search(algorithm="sb3_a2c", budget=50, episodes=4)
        assignment.search.policy.kind = "mlp"
        return assignment

    expected, accepted = undisturbed(tmp_path / "whole", baseline())
    # 50 x 4 episodes: 40 trainings and 160 episodes of their evaluations.
    assert (expected.evaluated, expected.episodes) == (40, 200)
    assert len(expected.best_parameters) == 4 * 64 + 64 + 64 * 64 + 64 + 2 * 64 + 2
    with FakeRunService(tmp_path / "store", baseline()) as service:
        trainer = service.start_trainer(tmp_path / "first")
        service.wait_for("improvement", timeout=200)
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(60) == 75
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        service.wait_for("result", timeout=200)
        assert trainer.wait(60) == 0
        assert service.accepted[1, "result"].result.search == expected
        assert improvements(service.accepted) == improvements(accepted) and not service.repeated


@pytest.mark.timeout(300)
def test_sigterm_stores_the_state_and_the_result_is_the_same(tmp_path):
    expected, _ = undisturbed(tmp_path / "whole", search(budget=20_000))
    with FakeRunService(tmp_path / "store", search(budget=20_000)) as service:
        trainer = service.start_trainer(tmp_path / "first")
        service.wait_for("improvement", timeout=60)
        signalled = time.monotonic()
        trainer.send_signal(signal.SIGTERM)
        when, report = service.wait_for("checkpoint", timeout=30)
        assert trainer.wait(30) == 75 and when - signalled < 20
        assert 0 < report.checkpoint.update < 20_000
        snapshot = checkpoints.read(tmp_path / "store" / report.checkpoint.key)
        assert snapshot.update == snapshot.facts["evaluated"] == report.checkpoint.update
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        _, report = service.wait_for("result")
        assert trainer.wait(60) == 0 and report.result.search == expected


@pytest.mark.timeout(300)
def test_a_damaged_state_costs_time_only(tmp_path):
    expected, _ = undisturbed(tmp_path / "whole", search(budget=1_000))
    store = tmp_path / "store"
    (store / "checkpoints").mkdir(parents=True)
    (store / "checkpoints/64.safetensors").write_bytes(b"damaged")
    for key in ("checkpoints/64.safetensors", "checkpoints/gone.safetensors"):
        task = search(budget=1_000)
        task.checkpoint = key
        with FakeRunService(store, task) as service:
            trainer = service.start_trainer(tmp_path / "scratch", attempt=2)
            _, report = service.wait_for("warning", timeout=60)
            assert report.warning.reason == "CHECKPOINT_CORRUPT" and "restarts" in report.warning.message
            _, report = service.wait_for("result")
            assert trainer.wait(60) == 0 and report.result.search == expected


@pytest.mark.timeout(300)
def test_the_result_of_a_search_balances_on_stock_gymnasium(tmp_path):
    searches = [search(number=seed, seed=seed, episodes=20, target=475.0, budget=3_000, cores=2) for seed in (1, 2, 3)]
    with FakeRunService(tmp_path / "store", *searches) as service:
        service.start_trainer(tmp_path / "scratch")
        results = [service.wait_for("result")[1].result.search for _ in searches]
    assert all(one.best_score >= 475 and one.evaluated < 3_000 for one in results)
    seeds, parameters = range(50_000, 50_040), [list(one.best_parameters) for one in results]
    tasks = [
        evaluate(*parameters, number=1, seeds=range(1_000, 1_020), cores=2),
        evaluate(*parameters, number=2, seeds=seeds, cores=2),
    ]
    with FakeRunService(tmp_path / "evaluated", *tasks) as service:
        service.start_trainer(tmp_path / "scratch")
        for _ in tasks:
            service.wait_for("result")
        accepted = service.accepted
    for index, one in enumerate(results):
        # With the search's seeds exactly its score; with others within their spread.
        assert np.mean(accepted[1, f"candidate/c{index}"].candidate.returns) == one.best_score
        returns = list(accepted[2, f"candidate/c{index}"].candidate.returns)
        error = 4 * max(np.std(returns, ddof=1), np.std(returns)) * np.sqrt(1 / 40 + 1 / 20)
        assert abs(np.mean(returns) - one.best_score) <= error + 1e-9
    env = gymnasium.make("CartPole-v1")
    weights, played = np.reshape(parameters[0], (2, 4)).astype(np.float32), []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        steps, ended = 0, False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(int((weights @ observation).argmax()))
            steps, ended = steps + 1, terminated or truncated
        played.append(float(steps))
    assert played == list(accepted[2, "candidate/c0"].candidate.returns)


@pytest.mark.timeout(300)
def test_a_killed_evaluation_repeats_no_finished_candidate(tmp_path):
    parameters = [[0.0, 0.0, -scale, -scale, 0.0, 0.0, scale, scale] for scale in np.linspace(0.1, 2, 16)]
    task = evaluate(*parameters, seeds=range(60), cores=2)
    with FakeRunService(tmp_path / "store", task) as service:
        trainer = service.start_trainer(tmp_path / "first")
        for _ in range(3):
            service.wait_for("candidate", timeout=60)
        trainer.send_signal(signal.SIGKILL)
        trainer.wait(30)
        before = set(service.accepted)
        assert (1, "result") not in before
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        _, report = service.wait_for("result", timeout=200)
        assert trainer.wait(60) == 0
        assert set(service.sent[-1].finished_items) >= {item for _, item in before}
        assert report.result.evaluate.episodes == 60 * (16 - len(service.sent[-1].finished_items))
        assert len(service.accepted) == 17 and not service.repeated


@pytest.mark.timeout(300)
def test_bad_assignments_end_in_results_and_the_next_is_served(tmp_path):
    unknown = search(number=1)
    unknown.search.algorithm = "annealing"
    table = search(number=2)
    table.search.policy.kind = "table"
    nothing = evaluate([0.0] * 8, number=3, seeds=())
    with FakeRunService(tmp_path / "store", unknown, table, nothing, evaluate([0.0] * 8, number=4)) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        results = [service.wait_for("result")[1].result for _ in range(4)]
        assert trainer.wait(60) == 0
    for result, message in zip(
        results,
        (
            "algorithm: invalid value (got 'annealing')",
            "policy.kind: invalid value (got 'table')",
            "seeds: must contain at least 1 item(s) (got 0 entries)",
        ),
        strict=False,
    ):
        assert result.failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT
        assert result.failure.failure.message.startswith(message)
    assert results[3].evaluate.episodes == 1


@pytest.mark.timeout(300)
def test_a_trivial_candidate_on_a_live_lease_is_cheap(tmp_path):
    tasks = [evaluate([0.0] * 8, number=number, seeds=[number]) for number in range(1, 103)]
    with FakeRunService(tmp_path / "store", *tasks) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        whens = [service.wait_for("result", timeout=60)[0] for _ in tasks]
        assert trainer.wait(60) == 0
    # From one result to the next: an assignment is sent as soon as the result before it came in.
    seconds = statistics.median(later - earlier for earlier, later in pairwise(whens))
    print(f"median of 101 assignments: {1000 * seconds:.1f} ms")
    assert seconds < 0.05
