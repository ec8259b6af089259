"""What people tell a session: notes and directions for its next iteration, approvals, scores for rollouts. No gRPC here."""

from __future__ import annotations

import asyncio
import json

import sqlalchemy as sa
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import names
from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.clock import micros
from dressage_orchestrator.database import directions, events, requests, runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import LABELS
from dressage_orchestrator.service import Sessions
from dressage_orchestrator.statistics import cohen_kappa, deviation, mean, spearman
from dressage_orchestrator.workflow.durable import Workflows

_SHOWN_FAILURES = 5


class Guidance:
    """Operations of people on sessions.

    :param judge: checks a reward before it is taken.
    """

    def __init__(self, service: Sessions, *, judge: JudgeClient, workflows: Workflows) -> None:
        self._service = service
        self._judge = judge
        self._workflows = workflows

    async def steer(self, request: pb.SteerSessionRequest) -> None:
        """Stores what the next iteration follows. An ended session keeps it for when it is resumed.

        :raises InvalidArgument: when nothing is said, a reward does not pass its check, or there is no such iteration.
        """
        session = names.parse_session(request.name)
        said = [
            *(["proposal"] if request.proposal_source.strip() else []),
            *(["criteria"] if request.criteria else []),
            *([f"rebase_to={request.rebase_to}"] if request.rebase_to else []),
        ]
        if not request.note.strip() and not said:
            expected = "a note in words, a reward, criteria or an iteration to start from"
            raise InvalidArgument(field="note", value=request.note, expected=expected)
        found = await self._service.read(lambda tx: sessions.get(tx, session))
        if request.proposal_source.strip():
            await self._check(found, request.proposal_source)

        def record(tx: Transaction) -> None:
            if requests.earlier(tx, "SteerSession", request.request_id, request) is not None:
                return
            if request.rebase_to:
                _require_judged(tx, session, request.rebase_to)
            _store(tx, session, request)
            sessions.add_note(tx, session, request.note.strip(), set_=said)
            requests.remember(tx, "SteerSession", request.request_id, request, request.name)

        await self._service.transact(record)
        await asyncio.to_thread(self._workflows.wake, session, "steer")

    async def _check(self, session: v1.Session, source: str) -> None:
        environment = session.spec.environment.removeprefix("environments/")
        report = await self._judge.check(judge_pb.CheckRequest(environment=environment, reward_source=source))
        if report.ok:
            return
        told = [
            f"{entry.rule}{f' (line {entry.line})' if entry.line else ''}: {entry.message}"
            for entry in report.failures[:_SHOWN_FAILURES]
        ]
        message = f"proposal_source does not pass its check: {'; '.join(told)}"
        raise InvalidArgument(message, field="proposal_source", reason="REWARD_REJECTED")

    async def approve(self, request: pb.ApproveSessionRequest) -> v1.Session:
        """Lets the proposal that waits be trained.

        :raises FailedPrecondition: when none waits, or another one.
        """
        session = names.parse_session(request.name)

        def record(tx: Transaction) -> v1.Session:
            found = sessions.get(tx, session)
            if requests.earlier(tx, "ApproveSession", request.request_id, request) is not None:
                return found
            waiting = found.awaiting_approval
            if not waiting:
                message = f"no proposal of session {session!r} waits for approval"
                raise FailedPrecondition(message, reason="NOTHING_TO_APPROVE")
            if request.iteration not in (0, waiting):
                message = f"iteration {waiting} of session {session!r} waits for approval, not {request.iteration}"
                raise FailedPrecondition(message, reason="OTHER_ITERATION_WAITS", metadata={"iteration": str(waiting)})
            directions.add(tx, session, directions.APPROVE, request.note.strip(), iteration=waiting)
            requests.remember(tx, "ApproveSession", request.request_id, request, request.name)
            return found

        found = await self._service.transact(record)
        await asyncio.to_thread(self._workflows.wake, session, "approve")
        return found

    async def label(self, request: pb.LabelRolloutRequest) -> pb.LabelRolloutResponse:
        """Records a person's score; the rollout's judgment with the person's verdict in it, and how all labels agree."""

        def record(tx: Transaction) -> pb.LabelRolloutResponse:
            run, member = _owner(request.rollout)
            if requests.earlier(tx, "LabelRollout", request.request_id, request) is None:
                _store_label(tx, request)
                requests.remember(tx, "LabelRollout", request.request_id, request, request.rollout)
            rows = tx.execute(sa.select(LABELS).where(LABELS.c.rollout == request.rollout)).all()
            judgment: list[v1.Judgment] = []

            def edit(entry: v1.Member) -> None:
                judgment.extend(_with_labels(entry, request.rollout, rows))

            runs.change_member(tx, run, member, edit)
            if not judgment:
                raise NotFound(f"no rollout {request.rollout!r}", reason="ROLLOUT_NOT_FOUND")
            parts = names.parse_run(run)
            told = ev.Event(judged=ev.Judged(subject=request.rollout, judgment=judgment[0]))
            events.append(tx, parts.session, told, iteration=parts.iteration)
            found = _agreement(tx, parts.session)
            sessions.change(tx, parts.session, lambda entry: entry.label_agreement.CopyFrom(found))
            return pb.LabelRolloutResponse(judgment=judgment[0], agreement=found)

        return await self._service.transact(record)


def _require_judged(tx: Transaction, session: str, number: int) -> None:
    judged = [entry.number for entry in sessions.iterations(tx, session) if entry.HasField("judgment")]
    if number not in judged:
        known = ", ".join(str(entry) for entry in judged) or "none yet"
        raise InvalidArgument(field="rebase_to", value=number, expected=f"a judged iteration of the session: {known}")


def _store(tx: Transaction, session: str, request: pb.SteerSessionRequest) -> None:
    if request.proposal_source.strip():
        directions.add(tx, session, directions.REWARD, request.proposal_source)
    if request.criteria:
        criteria = [MessageToDict(entry) for entry in request.criteria]
        directions.add(tx, session, directions.CRITERIA, json.dumps(criteria))
    if request.rebase_to:
        directions.add(tx, session, directions.REBASE, str(request.rebase_to))


def _owner(rollout: str) -> tuple[str, str]:
    """Run and member of a rollout's artifact key."""
    run, _, rest = rollout.partition("/members/")
    member, _, name = rest.partition("/")
    if not name.startswith("rollouts/"):
        raise InvalidArgument(field="rollout", value=rollout, expected="the artifact key of a rollout")
    return run, member


def _store_label(tx: Transaction, request: pb.LabelRolloutRequest) -> None:
    tx.lock(f"labels/{request.rollout}")
    count = tx.execute(sa.select(sa.func.count()).where(LABELS.c.rollout == request.rollout)).scalar_one()
    row = {"rollout": request.rollout, "number": count + 1, "score": request.score, "comment": request.comment}
    tx.execute(sa.insert(LABELS).values(**row, create_micros=micros(tx.now)))


def _with_labels(member: v1.Member, rollout: str, labels: list[sa.Row]) -> list[v1.Judgment]:  # type: ignore[type-arg]
    """Writes the people's verdict into the rollout's judgment, and the judgment; empty if there is no such rollout."""
    for evaluation in member.evaluations:
        for entry in evaluation.rollouts:
            if entry.artifact == rollout:
                scores = [row.score for row in labels]
                others = [v for v in entry.judgment.verdicts if v.kind != v1.JUDGE_KIND_HUMAN]
                del entry.judgment.verdicts[:]
                entry.judgment.verdicts.extend(others)
                person = entry.judgment.verdicts.add(kind=v1.JUDGE_KIND_HUMAN, score=mean(scores), votes=len(scores))
                person.spread = deviation(scores)
                person.comment = labels[-1].comment
                return [entry.judgment]
    return []


def _agreement(tx: Transaction, session: str) -> v1.Agreement:
    """How people's labels of a session's rollouts agree with the judges' scores, and with passing."""
    threshold = sessions.get(tx, session).spec.pass_threshold
    people: list[float] = []
    judges: list[float] = []
    for judgment in _labelled(tx, session):
        scores = {verdict.kind: verdict.score for verdict in judgment.verdicts}
        if len(scores) > 1:  # a label without a judge's verdict beside it says nothing on the judges
            people.append(scores[v1.JUDGE_KIND_HUMAN])
            judges.append(judgment.score)
    found = v1.Agreement(rollouts=len(people))
    rank, kappa = spearman(people, judges), cohen_kappa(*([s >= threshold for s in side] for side in (people, judges)))
    if rank is not None:
        found.spearman = rank
    if kappa is not None:
        found.kappa = kappa
    return found


def _labelled(tx: Transaction, session: str) -> list[v1.Judgment]:
    prefix = names.session_name(session) + "/"
    query = sa.select(LABELS.c.rollout).where(LABELS.c.rollout.startswith(prefix, autoescape=True)).distinct()
    found: list[v1.Judgment] = []
    wanted = {row.rollout for row in tx.execute(query)}
    for run in sorted({_owner(rollout)[0] for rollout in wanted}):
        for member in runs.members(tx, run):
            found += [r.judgment for e in member.evaluations for r in e.rollouts if r.artifact in wanted]
    return found
