"""The process of a search, interrupted anywhere: any sequence of attempts reports what an undisturbed one does."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dressage.errors import DeadlineExceeded
from dressage.programs.families import program_task
from dressage.programs.from_reply import from_reply
from dressage.programs.recorded import recorded_replies
from dressage.programs.syntax import to_text
from dressage_trainer import checkpoints
from dressage_trainer.search import program_process, programs
from dressage_trainer.search.messages import PROGRAM_ALGORITHMS, ProgramSearchTask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Outcome = tuple[Any, ...]
SCHEDULE = {
    "start": 8,
    "end": 256,
    "programs": 100_000,
    "ratio": "log",
    "shape": "sin",
    "interpolation": "log",
}


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Lease:
    """What outlives the processes of a search: its newest stored state, and the improvements that were accepted."""

    folder: Path
    stored: Path | None = None
    accepted: dict[int, tuple[float, str]] = field(default_factory=dict)
    end: dict[str, Any] | None = None

    def state(self) -> dict[str, Any] | None:
        """Return the newest stored state, as the supervisor reads it from a checkpoint."""
        return None if self.stored is None else checkpoints.read(self.stored).facts

    def take(self, message: dict[str, Any]) -> None:
        """Take a message of the process; a repeated improvement must be the one accepted before."""
        match message["type"]:
            case "ProgramImprovementMessage":
                item = message["score"], message["program"]
                assert self.accepted.setdefault(message["evaluated"], item) == item
            case "StateMessage":
                snapshot = checkpoints.Snapshot(message["evaluated"], 0, message["state"], {})
                self.stored = self.folder / checkpoints.write(self.folder, snapshot)
            case "ProgramEndMessage":
                self.end = message
            case other:
                assert other == "ProgressMessage", message


class Attempt:
    """The supervisor's end of the channel of one attempt.

    :param kill_after: messages after which the process is killed; the last one is still received.
    :param request_every: polls of the process between two requests for its state; 0: none.
    :param store_always: whether it stores its state after every block.
    """

    def __init__(
        self,
        lease: Lease,
        task: dict[str, Any],
        *,
        kill_after: int | None,
        request_every: int = 3,
        store_always: bool = False,
        lose_state: bool = False,
    ) -> None:
        self._lease, self._left, self._every, self._polls = lease, kill_after, request_every, 0
        self._request = {
            "task": task,
            "state": None if lose_state else lease.state(),
            "checkpoint_seconds": 0.0 if store_always else 1e9,
        }

    def recv(self, *, timeout: float) -> dict[str, Any]:
        if timeout > 0:
            return self._request
        self._polls += 1
        if self._every and self._polls % self._every == 0:
            return {"checkpoint": True}
        raise DeadlineExceeded("nothing")

    def send(self, message: dict[str, Any]) -> None:
        self._lease.take(message)
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                raise Killed


ATTEMPTS = st.lists(
    st.fixed_dictionaries(
        {
            "kill_after": st.integers(1, 40),
            "request_every": st.integers(0, 4),
            "store_always": st.booleans(),
            "lose_state": st.sampled_from((False, False, False, True)),
            "threads": st.integers(1, 3),
            "block": st.integers(1, 200),
        }
    ),
    min_size=1,
    max_size=3,
)


@functools.cache
def recorded(environment: str) -> tuple[str, ...]:
    task = program_task(environment)
    candidates = [from_reply(reply, task.language) for reply in recorded_replies(environment).replies]
    firsts = [next((one.program for one in each if one.program is not None), None) for each in candidates]
    return tuple(dict.fromkeys(to_text(program) for program in firsts if program is not None))


def task_of(environment: str, algorithm: str, *, seeded: bool, target: float | None = None) -> dict[str, Any]:
    return ProgramSearchTask(
        environment=environment,
        profile="corrected",
        algorithm=algorithm,
        programs=recorded(environment) if seeded else (),
        states=tuple(range(32)),
        budget=300 if algorithm.startswith("latent") else 2_000,
        seed=3,
        target=target,
        neighbours=50,
        schedule=SCHEDULE,
        threads=1,
    ).to_dict()


def finished(task: dict[str, Any], attempts: list[dict[str, Any]], set_block: Callable[[int], None]) -> Outcome:
    """Return what the last attempt ends in and all that was accepted; the counts of work done are no part of it."""
    with tempfile.TemporaryDirectory() as folder:
        lease = Lease(Path(folder))
        for one in [*attempts, {"kill_after": None, "threads": 2, "block": 700}]:
            chosen = dict(one)
            set_block(chosen.pop("block"))
            channel: Any = Attempt(lease, {**task, "threads": chosen.pop("threads")}, **chosen)
            try:
                program_process.search(channel)
            except Killed:
                continue
            break
        assert lease.end is not None
        counted = {name: value for name, value in lease.end.items() if name not in ("episodes", "cache_hits")}
        assert counted["improvements"] == tuple(
            (number, lease.accepted[number][0]) for number in sorted(lease.accepted)
        )
        return counted, sorted(lease.accepted.items())


@functools.cache
def undisturbed(environment: str, algorithm: str, seeded: bool, target: float | None) -> Outcome:
    return finished(task_of(environment, algorithm, seeded=seeded, target=target), [], lambda _: None)


CASES = [
    ("karel/DoorKey", algorithm, seeded, None)
    for algorithm in PROGRAM_ALGORITHMS
    for seeded in ((False,) if algorithm == "random" else (True, False))
]
CASES += [("karel/StairClimber", "scheduled_hill_climb", False, 0.4), ("minigrid/PutNear", "hill_climb", True, None)]


@given(case=st.sampled_from(CASES), attempts=ATTEMPTS)
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_attempts_that_are_killed_anywhere_end_in_the_same_program(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, bool, float | None], attempts: list[dict[str, Any]]
) -> None:
    environment, algorithm, seeded, target = case
    task = task_of(environment, algorithm, seeded=seeded, target=target)
    outcome = finished(task, attempts, lambda block: monkeypatch.setattr(programs, "_FIRST_BLOCK", block))
    monkeypatch.undo()
    assert outcome == undisturbed(*case)


OFTEN = [{"kill_after": 6 + 5 * i, "store_always": True, "threads": 1 + i % 3, "block": 7 + 30 * i} for i in range(5)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)).replace("/", "-"))
def test_a_search_that_is_killed_often_ends_in_the_same_program(
    case: tuple[str, str, bool, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, algorithm, seeded, target = case
    task = task_of(environment, algorithm, seeded=seeded, target=target)
    outcome = finished(task, OFTEN, lambda block: monkeypatch.setattr(programs, "_FIRST_BLOCK", block))
    assert outcome == undisturbed(*case)
