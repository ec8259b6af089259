"""Rows: events without gaps under contention, changes that are not lost, reports that count once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import AlreadyExists, NotFound
from dressage_orchestrator.api.runs import RunServicer
from dressage_orchestrator.database import effects, events, reports, requests, runs, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.tokens import RunTokens
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers.postgres import Postgres, postgres

RUN = "sessions/s/iterations/1/runs/train"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as started:
        yield started


@pytest.fixture(scope="module")
def migrated(server: Postgres) -> str:
    """The name of a database with all tables, to be copied."""
    url = server.database()
    Database(url).close()
    return url.rpartition("/")[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    local = request.param == "sqlite"
    url = sqlite_url(tmp_path / "d.db")
    if not local:
        migrated = request.getfixturevalue("migrated")
        url = request.getfixturevalue("server").database(like=migrated)
    made = Database(url)
    with made.begin() as tx:
        sessions.create(tx, "s", v1.SessionSpec(intent="run"))
        add_run(tx, RUN)
    yield made
    made.close()


def add_run(tx: object, name: str) -> None:
    members = [v1.Member(name=f"{name}/members/{m}", config="c", target_env_steps=100) for m in ("a", "b")]
    runs.create(tx, v1.Run(name=name, pool="local", members=members), [work.Assignment(id=1)])  # type: ignore[arg-type]
    runs.change(tx, name, begin)  # type: ignore[arg-type]


def begin(run: v1.Run) -> None:
    run.attempt, run.state = 1, v1.RUN_STATE_RUNNING


def together(work_: Callable[[int], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work_, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_events_have_no_gaps_and_no_change_is_lost(database: Database) -> None:
    def edit(number: int) -> None:
        for _ in range(5):
            with database.begin() as tx:
                sessions.change(tx, "s", lambda s: setattr(s, "env_steps", s.env_steps + 1))
                events.append(tx, "s", ev.Event(note_given=ev.NoteGiven(note=str(number))))

    together(edit)
    with database.begin() as tx:
        assert sessions.get(tx, "s").env_steps == 40
        numbers = [event.sequence for event in events.after(tx, "s", 0, limit=1000)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 40


def test_a_transaction_that_fails_leaves_no_event_and_tells_nobody(database: Database) -> None:
    told: list[set[str]] = []
    database.listener = told.append
    with database.begin() as tx:
        before = len(events.after(tx, "s", 0))

    def fail() -> None:
        with database.begin() as tx:
            events.append(tx, "s", ev.Event(note_given=ev.NoteGiven(note="x")))
            sessions.get(tx, "none")

    with pytest.raises(NotFound):
        fail()
    with database.begin() as tx:
        assert len(events.after(tx, "s", 0)) == before
    assert not told
    with database.begin() as tx:
        events.append(tx, "s", ev.Event(note_given=ev.NoteGiven(note="x")))
    assert told == [{"sessions/s"}]


def test_effects_happen_once_and_etags_move(database: Database) -> None:
    with database.begin() as tx:
        assert [effects.first_time(tx, "s", "x") for _ in range(2)] == [True, False]
        before = sessions.get(tx, "s").etag
        assert sessions.change(tx, "s", lambda s: None).etag != before == "1"


def test_request_ids_answer_alike_and_refuse_another_request(database: Database) -> None:
    one, other = v1.SessionSpec(intent="a"), v1.SessionSpec(intent="b")
    with database.begin() as tx:
        requests.remember(tx, "Create", "r", one, "sessions/s")
        assert requests.earlier(tx, "Create", "r", one) == "sessions/s"
        assert requests.earlier(tx, "Other", "r", one) is None
        with pytest.raises(AlreadyExists):
            requests.earlier(tx, "Create", "r", other)


def test_notes_are_heeded_by_one_revision(database: Database) -> None:
    with database.begin() as tx:
        sessions.add_note(tx, "s", "one")
        assert sessions.take_notes(tx, "s", 2) == ["one"]
        sessions.add_note(tx, "s", "two")
        assert sessions.take_notes(tx, "s", 2) == ["one", "two"]  # the step was repeated after a crash
        assert sessions.take_notes(tx, "s", 3) == []


def evaluation(sequence: int, member: str, step: int) -> work.Report:
    rollout = v1.Rollout(artifact=f"members/{member}/rollouts/{step}_median.npz", label="median")
    body = v1.Evaluation(env_step=step, returns=[float(step)], rollouts=[rollout])
    return work.Report(
        sequence=sequence, assignment=1, evaluation=work.EvaluationReport(member=member, evaluation=body)
    )


STORY = [
    evaluation(1, "a", 50),
    work.Report(sequence=2, checkpoint=work.CheckpointReport(key="checkpoints/3.safetensors", update=3)),
    evaluation(3, "b", 50),
    work.Report(sequence=4, warning=work.WarningReport(reason="PLATEAU", message="flat", member="a")),
    evaluation(5, "a", 100),
    work.Report(sequence=6, member=work.MemberReport(member="a", env_step=100, policy="members/a/policy")),
]
DONE = work.Report(sequence=7, assignment=1, done=work.AssignmentDone(env_steps=200))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(repeats=st.lists(st.integers(0, len(STORY) - 1), max_size=8), number=st.integers(0, 10**9))
def test_redelivered_reports_change_nothing(database: Database, repeats: list[int], number: int) -> None:
    def tell(name: str, told: list[work.Report]) -> tuple[list[bytes], int]:
        with database.begin() as tx:
            if runs.find(tx, name) is not None:
                return [], 0
            add_run(tx, name)
            first = len(events.after(tx, "s", 0, limit=10_000))
            for report in told:
                assert reports.record(tx, name, 1, report, progress_seconds=0) is Fence.OPEN
            assert reports.record(tx, name, 1, DONE, progress_seconds=0) is Fence.OPEN
            row = runs.get(tx, name)
            assert row.run.state == v1.RUN_STATE_SUCCEEDED and row.checkpoint == "checkpoints/3.safetensors"
            members = [m.SerializeToString(deterministic=True).replace(name.encode(), b"R") for m in row.run.members]
            return members, len(events.after(tx, "s", 0, limit=10_000)) - first

    plain = f"sessions/s/iterations/1/runs/p{number}"
    repeated = f"sessions/s/iterations/1/runs/r{number}"
    # Whatever was delivered before a cut is delivered again, in order, from an arbitrary point.
    told = list(STORY)
    for start in repeats:
        told += STORY[start:]
    once, again = tell(plain, STORY), tell(repeated, told)
    assert [len(m) for m in once[0]] == [len(m) for m in again[0]] and once[1] == again[1]


def test_zombies_and_late_reports_are_not_heard(database: Database) -> None:
    with database.begin() as tx:
        assert reports.record(tx, RUN, 2, STORY[0], progress_seconds=0) is Fence.SUPERSEDED
        assert reports.record(tx, RUN, 1, STORY[0], progress_seconds=0) is Fence.OPEN
        runs.change(tx, RUN, lambda run: setattr(run, "attempt", 2))
        assert reports.record(tx, RUN, 1, STORY[4], progress_seconds=0) is Fence.SUPERSEDED
        # The next attempt evaluates the same checkpoint again: it counts once.
        assert reports.record(tx, RUN, 2, evaluation(1, "a", 50), progress_seconds=0) is Fence.OPEN
        member = runs.members(tx, RUN)[0]
        assert [e.env_step for e in member.evaluations] == [50]
        assert member.evaluations[0].rollouts[0].artifact.startswith(f"{RUN}/members/a/")
        runs.end(tx, RUN, v1.RUN_STATE_CANCELLED)
        assert reports.record(tx, RUN, 2, STORY[4], progress_seconds=0) is Fence.CANCELLED
        runs.end(tx, RUN, v1.RUN_STATE_SUCCEEDED)  # an ended run stays as it ended
        assert runs.get(tx, RUN).run.state == v1.RUN_STATE_CANCELLED


def test_progress_tells_at_most_so_often(database: Database) -> None:
    report = work.ProgressReport(members=[work.MemberProgress(member="a", env_step=40)], steps_per_second=16.0)
    with database.begin() as tx:
        for sequence in range(1, 6):
            said = work.Report(sequence=sequence, progress=report)
            reports.record(tx, RUN, 1, said, progress_seconds=60)
        told = [event.progress for event in events.after(tx, "s", 0) if event.HasField("progress")]
    assert len(told) == 1 and told[0].seconds_left == pytest.approx(160 / 16)
    assert told[0].members[0].env_steps == 40


def test_a_member_that_was_stopped_is_told_and_waited_for_no_longer(database: Database) -> None:
    with database.begin() as tx:
        failure = v1.Failure(reason="REWARD_NOT_FINITE", message="reward term 'bad' was not finite")
        stopped = work.Report(sequence=1, member=work.MemberReport(member="a", env_step=40, failure=failure))
        for _ in range(2):  # the second time it says nothing new
            assert reports.record(tx, RUN, 1, stopped, progress_seconds=0) is Fence.OPEN
        rest = [work.MemberProgress(member="a", env_step=40), work.MemberProgress(member="b", env_step=90)]
        said = work.Report(sequence=2, progress=work.ProgressReport(steps_per_second=10, members=rest))
        reports.record(tx, RUN, 1, said, progress_seconds=0)
        found = list(events.after(tx, "s", 0))
    (warning,) = [event.warning for event in found if event.HasField("warning")]
    assert warning.reason == "MEMBER_STOPPED" and warning.message == "a was stopped: reward term 'bad' was not finite"
    (progress,) = [event.progress for event in found if event.HasField("progress")]
    assert progress.seconds_left == 1.0


def test_the_next_attempt_is_told_the_checkpoint_and_who_was_stopped(database: Database) -> None:
    name, unused = "sessions/s/iterations/1/runs/next", None
    task = work.TrainAssignment(members=[work.MemberSpec(id=member) for member in ("a", "b")])
    members = [v1.Member(name=f"{name}/members/{member}", config="c") for member in ("a", "b")]
    failure = v1.Failure(reason="REWARD_NOT_FINITE", message="the term cost is not finite")
    with database.begin() as tx:
        runs.create(tx, v1.Run(name=name, pool="local", members=members), [work.Assignment(id=1, train=task)])
        runs.change(tx, name, begin)
    servicer = RunServicer(database=database, hub=unused, tokens=unused, controller=unused, store=unused,
                           progress_seconds=1.0, ended=unused)  # type: ignore[arg-type]  # fmt: skip
    hello = work.Hello(run=name, attempt=1)
    _, (first,), _ = servicer.standing(hello)
    assert not first.train.checkpoint and not first.train.stopped
    for number, told in enumerate((work.Report(member=work.MemberReport(member="b", failure=failure)),
                                   work.Report(checkpoint=work.CheckpointReport(key="checkpoints/7"))), start=1):  # fmt: skip
        told.sequence = number
        with database.begin() as tx:
            assert reports.record(tx, name, 1, told, progress_seconds=0) is Fence.OPEN
    _, (then,), _ = servicer.standing(hello)
    assert then.train.checkpoint == "checkpoints/7" and dict(then.train.stopped) == {"b": failure}


@pytest.mark.parametrize("stopped", [("a",), ("a", "b")])
def test_a_run_that_is_tried_again_tries_its_members_where_none_was_left(
    database: Database, stopped: tuple[str, ...]
) -> None:
    controller = RunController(database, RunTokens(b"k" * 16), token_seconds=60, max_failures=1)
    failure = v1.Failure(reason="GRADIENT_NOT_FINITE", message="m")
    with database.begin() as tx:
        for number, member in enumerate(stopped, start=1):
            told = work.Report(sequence=number, member=work.MemberReport(member=member, failure=failure))
            reports.record(tx, RUN, 1, told, progress_seconds=0)
    controller.reopen(RUN)  # under way: nothing to do
    with database.begin() as tx:
        assert [member.HasField("failure") for member in runs.members(tx, RUN)] == [m in stopped for m in ("a", "b")]
        runs.end(tx, RUN, v1.RUN_STATE_FAILED, failure)
    controller.reopen(RUN)
    with database.begin() as tx:
        again = runs.get(tx, RUN).run
    assert again.state == v1.RUN_STATE_QUEUED and not again.HasField("failure")
    assert [member.name[-1] for member in again.members if member.HasField("failure")] == (
        ["a"] if len(stopped) == 1 else []
    )
