"""Searches over programs by a real trainer process over gRPC: ended in all ways, they end in the same result."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.policies import load_program
from dressage.programs.families import program_task
from dressage.programs.from_python import from_python
from dressage.programs.syntax import parse, to_text
from dressage.sandbox.capabilities import capabilities
from run_service import FakeRunService

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

STAIRS = "DEF run m( WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w) m)"


def search(
    environment="karel/DoorKey", *, number=1, cores=1, budget=60_000, checkpoint_seconds=1e9, programs=(), **fields
) -> pb.Assignment:
    work = pb.SearchAssignment(
        environment=environment, algorithm="scheduled_hill_climb", budget=budget, episodes=32, seed=7,
        checkpoint_seconds=checkpoint_seconds,
    )  # fmt: skip
    work.program.SetInParent()
    work.program.programs.extend(programs)
    for name, value in fields.items():
        setattr(work, name, value)
    return pb.Assignment(id=number, cores=cores, search=work)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The stores of this module: the trainers share the compiled kernels next to them."""
    return tmp_path_factory.mktemp("programs")


def undisturbed(store, assignment) -> tuple[pb.Report, dict]:
    """The result of a search, and all that was accepted."""
    with FakeRunService(store, assignment) as service:
        trainer = service.start_trainer(store.with_name(f"{store.name}-scratch"))
        _, report = service.wait_for("result", timeout=120)
        assert trainer.wait(60) == 0
        return report.result, dict(service.accepted)


def end(result) -> tuple:
    """What a result has to have in common with others: not what was counted on the way."""
    better = [(one.evaluated, one.score) for one in result.improvements]
    return result.evaluated, result.best_score, result.best_program, better


def improvements(accepted) -> list[tuple[int, float, str]]:
    better = [r.improvement.improvement for r in accepted.values() if r.WhichOneof("body") == "improvement"]
    return sorted((one.evaluated, one.score, one.program) for one in better)


@pytest.mark.timeout(600)
def test_a_program_search_ends_the_same_after_kills_and_on_more_cores(folder):
    result, accepted = undisturbed(folder / "whole", search())
    expected = result.search
    assert expected.evaluated == 60_000 and 0.4 < expected.best_score <= 1 and expected.cache_hits > 1_000
    streamed = improvements(accepted)
    assert [(number, score) for number, score, _ in streamed] == end(expected)[3]
    assert streamed[-1][2] == expected.best_program
    assert end(undisturbed(folder / "cores", search(cores=2))[0].search) == end(expected)
    with FakeRunService(folder / "killed", search(checkpoint_seconds=1e-9)) as service:
        stored = [0]
        for attempt in (1, 2, 3):
            trainer = service.start_trainer(folder / f"scratch-{attempt}", attempt=attempt)
            if attempt < 3:
                _, report = service.wait_for("checkpoint", timeout=120)
                trainer.send_signal(signal.SIGKILL)
                assert trainer.wait(30) == -9
                stored.append(report.checkpoint.update)
        service.wait_for("result", timeout=120)
        assert trainer.wait(60) == 0 and service.sent[-1].checkpoint
        assert 0 < stored[1] < stored[2] < 60_000
        assert end(service.accepted[1, "result"].result.search) == end(expected)
        assert improvements(service.accepted) == streamed and not service.repeated


@pytest.mark.timeout(300)
def test_a_start_program_is_counted_and_the_target_ends_the_search(folder):
    weak = "DEF run m( move m)"
    result, _ = undisturbed(folder / "start", search("karel/StairClimber", programs=[weak, STAIRS], target=1.0))
    assert (result.search.evaluated, result.search.best_score, result.search.best_program) == (2, 1.0, STAIRS)


@pytest.mark.timeout(300)
def test_programs_are_played_and_their_bundle_loads(folder):
    assignment = pb.Assignment(id=1, cores=2)
    work = assignment.evaluate
    work.environment, work.trace, work.bundles = "karel/StairClimber", "program_trace", True
    work.seeds.extend(range(1_000, 1_032))
    work.kept.extend(["worst", "best"])
    for name, text in (("good", STAIRS), ("weak", "DEF run m( move m)"), ("bad", "DEF run m( jump m)")):
        work.candidates.add(id=name, program=text)
    with FakeRunService(folder / "played", assignment) as service:
        trainer = service.start_trainer(folder / "played-scratch")
        service.wait_for("result", timeout=120)
        assert trainer.wait(60) == 0
        good, weak, bad = (service.accepted[1, f"candidate/{name}"].candidate for name in ("good", "weak", "bad"))
    assert list(good.returns) == [1.0] * 32 and all(good.successes) and min(good.lengths) >= 4
    task = program_task("karel/StairClimber")
    assert list(weak.returns) == [one.reward for one in task.play(task.parse("DEF run m( move m)"), work.seeds)]
    assert "Initial grid" in good.trace and "line" in weak.trace
    assert bad.failure.reason == "PROGRAM_INVALID" and "jump" in bad.failure.message
    policy = load_program(folder / "played" / good.policy)
    assert (policy.program, policy.environment, policy.profile) == (STAIRS, "karel/StairClimber", "corrected")
    assert policy.report_states == tuple(range(1_000, 1_032)) and "while noMarkersPresent():" in policy.python
    worst, best = weak.rollouts
    assert (worst.label, best.label) == ("worst", "best") and not bad.rollouts
    assert getattr(best, "return") == max(weak.returns) and best.seed == 1_000 + list(weak.returns).index(
        max(weak.returns)
    )
    (first, _) = good.rollouts
    check_episode(json.loads((folder / "played" / first.artifact).read_text()), STAIRS, first)


def check_episode(episode: dict, program: str, rollout) -> None:
    """The executing statement of each step is on its line of both texts; the steps add up to the return."""
    language = program_task("karel/StairClimber").language
    texts = episode["texts"]
    assert (
        to_text(parse(texts["dsl"]["text"], language))
        == to_text(from_python(texts["python"]["text"], language))
        == program
    )
    assert episode["state"] == rollout.seed and episode["return"] == rollout.proposed_return
    assert sum(step["reward"] for step in episode["steps"]) == pytest.approx(episode["return"])
    assert len(episode["steps"]) == episode["calls"] > 4 and episode["left_out"] == 0
    for step in episode["steps"]:
        for printed in texts.values():
            line = printed["text"].split("\n")[printed["lines"][step["statement"]] - 1]
            assert step["operation"].removesuffix("()") in line


@pytest.mark.timeout(300)
def test_a_search_that_cannot_be_done_is_refused(folder):
    cases = [
        ({"environment": "karel/Nothing"}, "environment: .*no programs"),
        ({"algorithm": "cma_es"}, "algorithm: .*cma_es"),
        ({"budget": 0}, "budget: .*0"),
        ({"programs": ["DEF run m( jump m)"]}, r"program.programs\[0\].*jump"),
    ]
    tasks = [search(number=number, **change) for number, (change, _) in enumerate(cases, start=1)]
    with FakeRunService(folder / "refused", *tasks) as service:
        service.start_trainer(folder / "refused-scratch")
        results = [service.wait_for("result")[1].result for _ in tasks]
    for result, (_, message) in zip(results, cases, strict=True):
        assert result.failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT
        assert re.search(message, result.failure.failure.message)
