"""Rows: events without gaps under contention, changes that are not lost, reports that count once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import AlreadyExists, NotFound
from dressage_orchestrator.database import assignments, events, idempotency, reports, runs, sessions
from dressage_orchestrator.database.engine import Database, Transaction, sqlite_url
from dressage_orchestrator.database.idempotency import RequestKey
from dressage_orchestrator.database.reports import Fence, Limits
from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.database.transactions import Transactions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers.postgres import Postgres, postgres
from tests.unit.orchestrator.leases import LIMITS, add_session, add_training, failed, name_of

RUN = "sessions/s/runs/r1"
TRAIN = name_of("s", "train")


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
    created = Database(url)
    with created.begin() as tx:
        add_session(tx, "s")
        add_training(tx, "s", "train")
        assert runs.create(tx, "s", pool="cpu").run.name == RUN
        begin(tx, 1)
    yield created
    created.close()


def begin(tx: Transaction, attempt: int) -> None:
    def edit(run: v1.Run) -> None:
        run.attempt, run.state = attempt, v1.RUN_STATE_RUNNING

    runs.change(tx, RUN, edit)


def record(tx: Transaction, attempt: int, report: work.Report) -> Fence:
    return reports.record(tx, RUN, attempt, report, LIMITS)


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
                events.append(tx, "s", ev.Event(note_added=ev.NoteAdded(note=str(number))))

    together(edit)
    with database.begin() as tx:
        assert sessions.get(tx, "s").env_steps == 40
        numbers = [event.sequence for event in events.after(tx, "s", 0, limit=1000)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 40


def test_a_failed_transaction_appends_and_publishes_nothing(database: Database) -> None:
    published: list[set[str]] = []
    database.listener = published.append
    with database.begin() as tx:
        before = len(events.after(tx, "s", 0))

    def fail() -> None:
        with database.begin() as tx:
            events.append(tx, "s", ev.Event(note_added=ev.NoteAdded(note="x")))
            sessions.get(tx, "none")

    with pytest.raises(NotFound):
        fail()
    with database.begin() as tx:
        assert len(events.after(tx, "s", 0)) == before
    assert not published
    with database.begin() as tx:
        events.append(tx, "s", ev.Event(note_added=ev.NoteAdded(note="x")))
    assert published == [{"sessions/s"}]


def test_effects_happen_once_and_etags_move(database: Database) -> None:
    with database.begin() as tx:
        assert [idempotency.record(tx, "s", "x") for _ in range(2)] == [True, False]
        before = sessions.get(tx, "s").etag
        assert sessions.change(tx, "s", lambda s: None).etag != before == "1"


def test_changes_of_a_transaction_add_up_in_few_statements(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is read once in a transaction, and again in the next one, which sees what others have written meanwhile."""
    statements: list[str] = []
    run = Transaction.execute

    def counted(self: Transaction, statement: object, *args: object) -> object:
        statements.append(str(statement).split(maxsplit=1)[0])
        return run(self, statement, *args)

    monkeypatch.setattr(Transaction, "execute", counted)

    def add(session: v1.Session) -> None:
        session.candidates += 1

    for _ in range(2):
        statements.clear()
        with database.begin() as tx:
            for _ in range(3):
                sessions.change(tx, "s", add)
        assert statements == ["SELECT", "UPDATE", "UPDATE", "UPDATE"]
    with suppress(ZeroDivisionError), database.begin() as tx:
        sessions.change(tx, "s", add)
        raise ZeroDivisionError
    with database.begin() as tx:
        assert sessions.change(tx, "s", add).candidates == 7 and sessions.get(tx, "s").candidates == 7


def test_request_ids_repeat_the_response_and_reject_other_requests(database: Database) -> None:
    one, other = v1.SessionSpec(intent="a"), v1.SessionSpec(intent="b")
    with database.begin() as tx:
        key = RequestKey("uma", "Create", "r")
        idempotency.record_request(tx, key, one, "sessions/s")
        assert idempotency.find_request(tx, key, one) == "sessions/s"
        for another in (
            RequestKey("uma", "Other", "r"),
            RequestKey("ugo", "Create", "r"),
            RequestKey("", "Create", "r"),
        ):
            assert idempotency.find_request(tx, another, one) is None
        with pytest.raises(AlreadyExists):
            idempotency.find_request(tx, key, other)


def test_notes_are_taken_by_one_revision(database: Database) -> None:
    with database.begin() as tx:
        sessions.add_note(tx, "s", "one")
        assert sessions.take_notes(tx, "s", 2) == ["one"]
        sessions.add_note(tx, "s", "two")
        assert sessions.take_notes(tx, "s", 2) == ["one", "two"]  # the step was repeated after a crash
        assert sessions.take_notes(tx, "s", 3) == []


def evaluation(sequence: int, member: str, step: int, assignment: int = 1) -> work.Report:
    rollout = v1.Rollout(artifact=f"members/{member}/rollouts/{step}_median.npz", label="median")
    body = v1.Evaluation(env_step=step, returns=[float(step)], rollouts=[rollout])
    report = work.EvaluationReport(member=member, evaluation=body)
    item = f"evaluation/{member}/{step}"
    return work.Report(sequence=sequence, assignment=assignment, item=item, evaluation=report)


def policy(sequence: int, member: str, step: int) -> work.Report:
    ref = work.PolicyRef(member=member, bundle=f"members/{member}/policies/{step}", env_step=step)
    item = f"policy/{member}/{step}"
    return work.Report(sequence=sequence, assignment=1, item=item, policy=work.PolicyReport(policy=ref))


def ended(sequence: int, member: str, failure: v1.Failure | None = None) -> work.Report:
    report = work.MemberReport(member=member, env_step=40 if failure else 100, failure=failure)
    if failure is None:
        report.policy = f"members/{member}/policy"
    return work.Report(sequence=sequence, assignment=1, item=f"member/{member}", member=report)


def checkpoint(sequence: int, update: int) -> work.Report:
    key = f"checkpoints/{update}.safetensors"
    body = work.CheckpointReport(key=key, update=update)
    return work.Report(sequence=sequence, assignment=1, item=f"checkpoint/{key}", checkpoint=body)


WARNING = work.WarningReport(reason="PLATEAU", message="flat", member="a")
RESULT = work.AssignmentResult(train=work.TrainResult(env_steps=200))
STORY = [
    policy(1, "a", 50),
    evaluation(2, "a", 50),
    checkpoint(3, 3),
    evaluation(4, "b", 50),
    work.Report(sequence=5, assignment=1, item="warning/1", warning=WARNING),
    evaluation(6, "a", 100),
    ended(7, "a"),
]
DONE = work.Report(sequence=8, assignment=1, item="result", result=RESULT)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(repeats=st.lists(st.integers(0, len(STORY) - 1), max_size=8), number=st.integers(0, 10**9))
def test_redelivered_reports_change_nothing(database: Database, repeats: list[int], number: int) -> None:
    def deliver(assignment: str, delivered: list[work.Report]) -> tuple[list[bytes], int]:
        with database.begin() as tx:
            if assignments.find(tx, name_of("s", assignment)) is not None:
                return [], 0
            name = add_training(tx, "s", assignment)
            number = assignments.get(tx, name).id
            attempt = number + 1  # so that each has a sequence of its own
            begin(tx, attempt)
            first = len(events.after(tx, "s", 0, limit=10_000))
            for report in [*delivered, DONE]:
                numbered = work.Report()
                numbered.CopyFrom(report)
                numbered.assignment = number
                assert record(tx, attempt, numbered) is Fence.OPEN
            row = assignments.get(tx, name)
            assert row.assignment.state == v1.ASSIGNMENT_STATE_SUCCEEDED
            assert row.checkpoint == "checkpoints/3.safetensors"
            members = [
                m.SerializeToString(deterministic=True).replace(name.encode(), b"A") for m in row.assignment.members
            ]
            return members, len(events.after(tx, "s", 0, limit=10_000)) - first

    # Whatever was delivered before a cut is delivered again, in order, from an arbitrary point.
    delivered = list(STORY)
    for start in repeats:
        delivered += STORY[start:]
    once, again = deliver(f"p{number}", STORY), deliver(f"r{number}", delivered)
    assert [len(m) for m in once[0]] == [len(m) for m in again[0]] and once[1] == again[1]


def test_superseded_attempts_and_late_reports_do_not_count(database: Database) -> None:
    with database.begin() as tx:
        assert record(tx, 2, STORY[1]) is Fence.SUPERSEDED
        assert record(tx, 1, STORY[1]) is Fence.OPEN
        begin(tx, 2)
        assert record(tx, 1, STORY[5]) is Fence.SUPERSEDED
        # The next attempt evaluates the same policy again: it counts once.
        assert record(tx, 2, evaluation(1, "a", 50)) is Fence.OPEN
        member = assignments.members(tx, TRAIN)[0]
        assert [e.env_step for e in member.evaluations] == [50]
        assert member.evaluations[0].rollouts[0].artifact.startswith(f"{TRAIN}/members/a/")
        runs.end(tx, RUN, v1.RUN_STATE_CANCELLED)
        assert record(tx, 2, STORY[5]) is Fence.CANCELLED
        runs.end(tx, RUN, v1.RUN_STATE_SUCCEEDED)  # an ended run stays as it ended
        assert runs.get(tx, RUN).run.state == v1.RUN_STATE_CANCELLED


def test_reports_of_an_ended_or_unknown_assignment_are_dropped(database: Database) -> None:
    with database.begin() as tx:
        assignments.end(tx, TRAIN, v1.ASSIGNMENT_STATE_CANCELLED)
        assert record(tx, 1, evaluation(1, "a", 50)) is Fence.OPEN
        assert record(tx, 1, evaluation(2, "a", 50, assignment=9)) is Fence.OPEN
        assert not assignments.members(tx, TRAIN)[0].evaluations and reports.finished_items(tx, TRAIN) == []
        assert record(tx, 1, work.Report(sequence=3, assignment=1, item="result", result=RESULT)) is Fence.OPEN
        assert assignments.get(tx, TRAIN).assignment.state == v1.ASSIGNMENT_STATE_CANCELLED


def test_metrics_with_new_names_each_time_do_not_add_up(database: Database) -> None:
    with database.begin() as tx:
        for sequence in range(1, 40):
            report = work.ProgressReport()
            names = {f"{sequence}-{number}": 1.0 for number in range(100)}
            report.members.add(member="a", env_step=sequence, metrics=names)
            numbered = work.Report(sequence=sequence, assignment=1, progress=report)
            reports.record(tx, RUN, 1, numbered, Limits(progress_seconds=60, max_failures=1))
        member = assignments.members(tx, TRAIN)[0]
    assert "39-0" in member.metrics and len(member.metrics) <= 256


def test_progress_events_are_bounded_in_time(database: Database) -> None:
    report = work.ProgressReport(members=[work.MemberProgress(member="a", env_step=40)], steps_per_second=16.0)
    with database.begin() as tx:
        for sequence in range(1, 6):
            numbered = work.Report(sequence=sequence, assignment=1, progress=report)
            reports.record(tx, RUN, 1, numbered, Limits(progress_seconds=60, max_failures=1))
        result = [event.progress for event in events.after(tx, "s", 0) if event.HasField("progress")]
    assert len(result) == 1 and result[0].seconds_left == pytest.approx(160 / 16)
    assert result[0].members[0].env_steps == 40 and result[0].assignment == TRAIN


def test_the_last_progress_of_a_training_is_an_event(database: Database) -> None:
    """However soon it comes after another one: curves reach their ends."""
    with database.begin() as tx:
        for sequence, steps in enumerate((40, 60, 100, 100), 1):
            report = work.ProgressReport(members=[work.MemberProgress(member=m, env_step=steps) for m in "ab"])
            numbered = work.Report(sequence=sequence, assignment=1, progress=report)
            reports.record(tx, RUN, 1, numbered, Limits(progress_seconds=60, max_failures=1))
        recorded = [event.progress for event in events.after(tx, "s", 0) if event.HasField("progress")]
    assert [[member.env_steps for member in progress.members] for progress in recorded] == [[40, 40], [100, 100]]


def test_a_stopped_member_gives_a_warning_and_is_not_waited_for(database: Database) -> None:
    with database.begin() as tx:
        failure = v1.Failure(reason="REWARD_NOT_FINITE", message="reward term 'bad' was not finite")
        for sequence in (1, 2):  # the second time it is no news
            assert record(tx, 1, ended(sequence, "a", failure)) is Fence.OPEN
        rest = [work.MemberProgress(member="a", env_step=40), work.MemberProgress(member="b", env_step=90)]
        progress = work.ProgressReport(steps_per_second=10, members=rest)
        record(tx, 1, work.Report(sequence=3, assignment=1, progress=progress))
        recorded = list(events.after(tx, "s", 0))
    (warning,) = [event.warning for event in recorded if event.HasField("warning")]
    assert warning.reason == "MEMBER_STOPPED" and warning.message == "a was stopped: reward term 'bad' was not finite"
    (shown,) = [event.progress for event in recorded if event.HasField("progress")]
    assert shown.seconds_left == 1.0


def test_policies_wait_for_evaluation_until_one_is_accepted(database: Database) -> None:
    with database.begin() as tx:
        for report in (policy(1, "a", 50), policy(2, "b", 50), policy(3, "a", 100), evaluation(4, "a", 50)):
            record(tx, 1, report)
        waiting = reports.pending_evaluations(tx, TRAIN, frozenset())
        assert [(entry.member, entry.env_step) for entry in waiting] == [("b", 50), ("a", 100)]
        assert waiting[0].bundle == "members/b/policies/50"
        rest = reports.pending_evaluations(tx, TRAIN, frozenset({"b"}))
        assert [(entry.member, entry.env_step) for entry in rest] == [("a", 100)]
        assert reports.finished_items(tx, TRAIN) == ["evaluation/a/50", "policy/a/100", "policy/a/50", "policy/b/50"]


def test_candidates_and_improvements_are_results_of_their_assignment(database: Database) -> None:
    evaluate, search = name_of("s", "evaluate"), name_of("s", "search")
    requested = [work.Candidate(id=ident) for ident in ("c2", "c10")]
    with database.begin() as tx:
        number = assignments.create(
            tx, work.Assignment(name=evaluate, evaluate=work.EvaluateAssignment(candidates=requested))
        ).id
        other = assignments.create(tx, work.Assignment(name=search, search=work.SearchAssignment(budget=9))).id
        rollout = v1.Rollout(artifact="candidates/c10/0.npz")
        for sequence, ident in enumerate(("c10", "c2", "c10"), start=1):
            result = v1.CandidateResult(id=ident, returns=[1.0, 2.0], lengths=[10, 20], rollouts=[rollout])
            item = f"candidate/{ident}"
            record(tx, 1, work.Report(sequence=sequence, assignment=number, item=item, candidate=result))
        for sequence, (evaluated, score) in enumerate(((1, 3.0), (4, 5.0), (4, 5.0)), start=4):
            improvement = work.ImprovementReport(
                improvement=v1.SearchImprovement(evaluated=evaluated, score=score),
                parameters=work.Parameters(values=[score, evaluated]),
            )
            item = f"improvement/{evaluated}"
            record(tx, 1, work.Report(sequence=sequence, assignment=other, item=item, improvement=improvement))
        stored = assignments.get(tx, evaluate).assignment
        assert [entry.id for entry in stored.candidates] == ["c2", "c10"]
        assert stored.candidates[0].rollouts[0].artifact == f"{evaluate}/candidates/c10/0.npz"
        searched = assignments.get(tx, search).assignment.search
        assert [(entry.evaluated, entry.score) for entry in searched.improvements] == [(1, 3.0), (4, 5.0)]
        assert list(searched.best_parameters) == [5.0, 4.0] and searched.best_score == 5.0
        final = v1.SearchResult(evaluated=9, episodes=9, env_steps=900, best_score=5.0, best_parameters=[5.0, 4.0])
        result = work.AssignmentResult(search=final)
        record(tx, 1, work.Report(sequence=7, assignment=other, item="result", result=result))
        searched = assignments.get(tx, search).assignment.search
        assert searched.evaluated == 9 and len(searched.improvements) == 2
        kinds = [event.WhichOneof("payload") for event in events.after(tx, "s", 0)]
        assert kinds.count("candidate_evaluated") == 2 and kinds.count("search_improved") == 2
        # Two candidates of thirty steps each, and the steps that the search reports.
        assert assignments.env_steps(tx, "s") == 60 + 900


@pytest.mark.parametrize(
    ("cause", "state", "generated"),
    [
        (work.AssignmentFailure.CAUSE_GENERATED_CODE, v1.ASSIGNMENT_STATE_FAILED, True),
        (work.AssignmentFailure.CAUSE_ASSIGNMENT, v1.ASSIGNMENT_STATE_FAILED, False),
        (work.AssignmentFailure.CAUSE_INFRASTRUCTURE, v1.ASSIGNMENT_STATE_PENDING, False),
        (work.AssignmentFailure.CAUSE_UNSPECIFIED, v1.ASSIGNMENT_STATE_PENDING, False),
    ],
)
def test_the_cause_of_a_failure_determines_the_retry(
    database: Database, cause: work.AssignmentFailure.Cause.ValueType, state: int, generated: bool
) -> None:
    with database.begin() as tx:
        result = failed("BROKEN", cause)
        assert record(tx, 1, work.Report(sequence=1, assignment=1, item="result", result=result)) is Fence.OPEN
        stored = assignments.get(tx, TRAIN).assignment
        repeated = state == v1.ASSIGNMENT_STATE_PENDING
        assert (stored.state, stored.generated_code_fault, stored.failures) == (state, generated, int(repeated))
        # An attempt whose machine failed is fenced off; one whose assignment failed takes the next.
        fence = reports.fence(runs.get(tx, RUN), 1)
        assert fence is (Fence.SUPERSEDED if repeated else Fence.OPEN)
        if repeated:
            begin(tx, 2)
            again = work.Report(sequence=1, assignment=1, item="result", result=result)
            record(tx, 2, again)
            stored = assignments.get(tx, TRAIN).assignment
        assert stored.state == v1.ASSIGNMENT_STATE_FAILED
        assert stored.failure.message == "BROKEN in the trainer's words"


def test_create_is_idempotent_by_name_and_numbers_are_the_sessions(database: Database) -> None:
    with database.begin() as tx:
        again = assignments.create(tx, work.Assignment(name=TRAIN, score=work.ScoreAssignment()))
        assert again.id == 1 and again.assignment.kind == "train"
        add_session(tx, "other")
        add_training(tx, "other", "train")
        name = add_training(tx, "s", "more")
        assert assignments.get(tx, name).id == 2 and assignments.find(tx, name_of("other", "train")).id == 1  # type: ignore[union-attr]
        assert [row.name for row in assignments.open_of(tx, "s")] == [TRAIN, name]
        positions, _ = assignments.page(tx, "s", iteration=None, after=None, limit=1)
        rest, _ = assignments.page(tx, "s", iteration=1, after=positions[0][1], limit=5)
        assert [entry.name for entry, _ in [*positions, *rest]] == [TRAIN, name]
        assert len(rest[0][0].members) == 2


@pytest.mark.parametrize("stopped", [("a",), ("a", "b")])
def test_reopening_keeps_items_and_clears_members_if_all_failed(database: Database, stopped: tuple[str, ...]) -> None:
    failure = v1.Failure(reason="GRADIENT_NOT_FINITE", message="m")
    with database.begin() as tx:
        record(tx, 1, checkpoint(1, 7))
        record(tx, 1, evaluation(2, "a", 50))
        for number, member in enumerate(stopped, start=3):
            record(tx, 1, ended(number, member, failure))
        assert not assignments.reopen(tx, TRAIN)  # under way: nothing to do
        assert [m.HasField("failure") for m in assignments.members(tx, TRAIN)] == [m in stopped for m in ("a", "b")]
        assignments.end(tx, TRAIN, v1.ASSIGNMENT_STATE_FAILED, failure)
        assert assignments.reopen(tx, TRAIN) and not assignments.reopen(tx, TRAIN)
        again = assignments.get(tx, TRAIN)
        assert again.assignment.state == v1.ASSIGNMENT_STATE_PENDING and not again.assignment.HasField("failure")
        # A new number: no trainer that had it takes it for done. What it did is kept.
        assert again.id == again.work.id == 2 and again.checkpoint == "checkpoints/7.safetensors"
        assert "evaluation/a/50" in reports.finished_items(tx, TRAIN)
        left = ["a"] if len(stopped) == 1 else []
        assert [m.name[-1] for m in again.assignment.members if m.HasField("failure")] == left
        assert [item for item in reports.finished_items(tx, TRAIN) if item.startswith("member/")] == [
            f"member/{member}" for member in left
        ]
        assignments.end(tx, TRAIN, v1.ASSIGNMENT_STATE_SUCCEEDED)
        assert not assignments.reopen(tx, TRAIN)


def test_changes_together_are_one_transaction(database: Database) -> None:
    store, topics = SessionStore(database, "s", 0, retry=lambda work: work()), []
    database.listener = topics.append

    def change() -> int:
        store.enter_phase(7, v1.PHASE_PROPOSE)
        assert store.iteration(7).phase == v1.PHASE_PROPOSE  # reads see the changes
        store.together(lambda: store.enter_phase(7, v1.PHASE_CHECK))  # within another one it is a part of it
        return len(store.iterations())

    def fail() -> None:
        change()
        raise NotFound("after the changes")

    with pytest.raises(NotFound):
        store.together(fail)
    assert store.iterations() == [] and topics == []
    assert store.together(change) == 1
    assert store.iteration(7).phase == v1.PHASE_CHECK and len(topics) == 1


def test_columns_of_a_compare_and_swap_are_written(database: Database) -> None:
    with database.begin() as tx:
        runs.change(tx, RUN, lambda _: {"release": True})
        assignments.change(tx, TRAIN, lambda _: {"checkpoint": "c/1"})
    with database.read() as tx:
        assert runs.get(tx, RUN).release and assignments.get(tx, TRAIN).checkpoint == "c/1"


def test_workflows_leave_connections_to_requests(database: Database) -> None:
    """Forty workflows use the database for as long as they can: at most four at a time, and a request still reads it."""
    release, inside = threading.Event(), threading.Semaphore(0)

    def query(_: object) -> None:
        inside.release()
        release.wait(60)

    def work() -> None:
        Transactions(database, lambda run: run())._read(query)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    try:
        assert all(inside.acquire(timeout=30) for _ in range(4))
        assert not inside.acquire(timeout=0.5)
        with database.read() as tx:
            assert sessions.get(tx, "s") is not None
    finally:
        release.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
