"""Human feedback on sessions: notes and directions for the next iteration, approvals, labels of rollouts. No gRPC here."""

from __future__ import annotations

import json

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage.statistics import cohen_kappa, deviation, mean, spearman
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import resource_names
from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.database import assignments, events, feedback, idempotency, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.feedback import Label
from dressage_orchestrator.database.idempotency import RequestKey
from dressage_orchestrator.lifecycle.workflows import Workflows
from dressage_orchestrator.ownership import caller
from dressage_orchestrator.service import Sessions


class HumanFeedback:
    """Operations for human feedback.

    :param judge: checks a person's proposal before it is accepted.
    """

    def __init__(self, service: Sessions, *, judge: JudgeClient, workflows: Workflows) -> None:
        self._service = service
        self._judge = judge
        self._workflows = workflows

    async def steer(self, request: pb.SteerSessionRequest) -> None:
        """Store directions for the next iteration. An ended session keeps them until it is resumed.

        :raises InvalidArgument: when the request is empty, a proposal fails its check, or the iteration does not exist.
        """
        session, key = resource_names.parse_session(request.name), _key("SteerSession", request)
        fields = [
            *(["proposal"] if request.proposal_source.strip() else []),
            *(["criteria"] if request.criteria else []),
            *([f"rebase_to={request.rebase_to}"] if request.rebase_to else []),
            *([f"from_parent={_choice(request)}"] if request.from_parent else []),
        ]
        if not request.note.strip() and not fields:
            expected = "a note, a proposal, criteria, an iteration to start from or what to continue from"
            raise InvalidArgument(field="note", value=request.note, expected=expected)
        current = await self._service.read(lambda tx: sessions.get(tx, session))
        if request.proposal_source.strip():
            method = self._service.methods.of(current.spec)
            await method.check_edit(current.spec, request.proposal_source, judge=self._judge)

        if request.from_parent:
            refusal = self._service.methods.of(current.spec).refusal_to_continue(current.spec)
            if refusal and request.from_parent == v1.FROM_PARENT_ALWAYS:
                raise InvalidArgument(field="from_parent", problem=refusal, value="always", expected="never or auto")

        def record(tx: Transaction) -> None:
            if idempotency.find_request(tx, key, request) is not None:
                return
            if request.rebase_to:
                _require_judged(tx, session, request.rebase_to)
            _store(tx, session, request)
            sessions.add_note(tx, session, request.note.strip(), set_=fields)
            idempotency.record_request(tx, key, request, request.name)

        await self._service.transact(record)
        await self._service.release(session)
        self._workflows.wake(session)

    async def approve(self, request: pb.ApproveSessionRequest) -> v1.Session:
        """Approve the proposal that waits for approval.

        :raises FailedPrecondition: when no proposal waits, or that of another iteration.
        """
        session, key = resource_names.parse_session(request.name), _key("ApproveSession", request)

        def record(tx: Transaction) -> v1.Session:
            current = sessions.get(tx, session)
            if idempotency.find_request(tx, key, request) is not None:
                return current
            waiting = current.awaiting_approval
            if not waiting:
                message = f"no proposal of session {session!r} waits for approval"
                raise FailedPrecondition(message, reason="NOTHING_TO_APPROVE")
            if request.iteration not in (0, waiting):
                message = f"iteration {waiting} of session {session!r} waits for approval, not {request.iteration}"
                raise FailedPrecondition(message, reason="OTHER_ITERATION_WAITS", metadata={"iteration": str(waiting)})
            feedback.add_direction(tx, session, feedback.APPROVE, request.note.strip(), iteration=waiting)
            idempotency.record_request(tx, key, request, request.name)
            return current

        current = await self._service.transact(record)
        await self._service.release(session)
        self._workflows.wake(session)
        return current

    async def label(self, request: pb.LabelRolloutRequest) -> pb.LabelRolloutResponse:
        """Record a person's score of a rollout.

        :return: the rollout's judgment including the person's verdict, and the agreement of all labels with the judges.
        """
        key = _key("LabelRollout", request)

        def record(tx: Transaction) -> pb.LabelRolloutResponse:
            assignment, member = _owner(request.rollout)
            if idempotency.find_request(tx, key, request) is None:
                feedback.add_label(tx, Label(request.rollout, request.score, request.comment))
                idempotency.record_request(tx, key, request, request.rollout)
            labels = feedback.labels_of(tx, request.rollout)
            judgment: list[v1.Judgment] = []

            def edit(entry: v1.Member) -> None:
                judgment.extend(_with_labels(entry, request.rollout, labels))

            assignments.change_member(tx, assignment, member, edit)
            if not judgment:
                raise NotFound(f"no rollout {request.rollout!r}", reason="ROLLOUT_NOT_FOUND")
            parts = resource_names.parse_assignment(assignment)
            event = ev.Event(judged=ev.Judged(subject=request.rollout, judgment=judgment[0]))
            events.append(tx, parts.session, event, iteration=parts.iteration)
            agreement = _agreement(tx, parts.session)
            sessions.change(tx, parts.session, lambda entry: entry.label_agreement.CopyFrom(agreement))
            return pb.LabelRolloutResponse(judgment=judgment[0], agreement=agreement)

        return await self._service.transact(record)


def _key(
    method: str, request: pb.SteerSessionRequest | pb.ApproveSessionRequest | pb.LabelRolloutRequest
) -> RequestKey:
    return RequestKey(caller(), method, request.request_id)


def _require_judged(tx: Transaction, session: str, number: int) -> None:
    numbers = [entry.number for entry in sessions.iterations(tx, session) if entry.HasField("score")]
    if number not in numbers:
        choices = ", ".join(str(entry) for entry in numbers) or "none yet"
        raise InvalidArgument(field="rebase_to", value=number, expected=f"a judged iteration of the session: {choices}")


def _store(tx: Transaction, session: str, request: pb.SteerSessionRequest) -> None:
    if request.proposal_source.strip():
        feedback.add_direction(tx, session, feedback.PROPOSAL, request.proposal_source)
    if request.criteria:
        criteria = [MessageToDict(entry) for entry in request.criteria]
        feedback.add_direction(tx, session, feedback.CRITERIA, json.dumps(criteria))
    if request.rebase_to:
        feedback.add_direction(tx, session, feedback.REBASE, str(request.rebase_to))
    if request.from_parent:
        feedback.add_direction(tx, session, feedback.FROM_PARENT, str(request.from_parent))


def _choice(request: pb.SteerSessionRequest) -> str:
    """Return the choice in lower case, such as `always`."""
    return v1.FromParent.Name(request.from_parent).removeprefix("FROM_PARENT_").lower()


def _owner(rollout: str) -> tuple[str, str]:
    """Assignment and member of a rollout's artifact key."""
    assignment, _, rest = rollout.partition("/members/")
    member, _, name = rest.partition("/")
    if not name.startswith("rollouts/"):
        raise InvalidArgument(field="rollout", value=rollout, expected="the artifact key of a rollout")
    return assignment, member


def _with_labels(member: v1.Member, rollout: str, entries: list[Label]) -> list[v1.Judgment]:
    """Write the labels as a verdict into the rollout's judgment.

    :return: the judgment; empty if the member has no such rollout.
    """
    for evaluation in member.evaluations:
        for entry in evaluation.rollouts:
            if entry.artifact == rollout:
                scores = [label.score for label in entries]
                others = [v for v in entry.judgment.verdicts if v.kind != v1.JUDGE_KIND_HUMAN]
                del entry.judgment.verdicts[:]
                entry.judgment.verdicts.extend(others)
                person = entry.judgment.verdicts.add(kind=v1.JUDGE_KIND_HUMAN, score=mean(scores), votes=len(scores))
                person.spread = deviation(scores)
                person.comment = entries[-1].comment
                return [entry.judgment]
    return []


def _agreement(tx: Transaction, session: str) -> v1.Agreement:
    """Agreement of people's labels with the judges' scores of a session's rollouts."""
    threshold = sessions.get(tx, session).spec.pass_threshold
    people: list[float] = []
    judges: list[float] = []
    for judgment in _labelled_judgments(tx, session):
        scores = {verdict.kind: verdict.score for verdict in judgment.verdicts}
        if len(scores) > 1:  # only rollouts with a judge's verdict can be compared
            people.append(scores[v1.JUDGE_KIND_HUMAN])
            judges.append(judgment.score)
    agreement = v1.Agreement(rollouts=len(people))
    rank, kappa = spearman(people, judges), cohen_kappa(*([s >= threshold for s in side] for side in (people, judges)))
    if rank is not None:
        agreement.spearman = rank
    if kappa is not None:
        agreement.kappa = kappa
    return agreement


def _labelled_judgments(tx: Transaction, session: str) -> list[v1.Judgment]:
    judgments: list[v1.Judgment] = []
    labelled = {label.rollout for label in feedback.session_labels(tx, session)}
    for assignment in sorted({_owner(rollout)[0] for rollout in labelled}):
        for member in assignments.members(tx, assignment):
            judgments += [r.judgment for e in member.evaluations for r in e.rollouts if r.artifact in labelled]
    return judgments
