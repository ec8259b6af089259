"""Method `code`: reflect → write policies → check → play → choose, in rounds; then score the best policy on report seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from google.protobuf.message import Message

from dressage_orchestrator import resource_names
from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.method import (
    Deliverable,
    Estimate,
    EvaluationResult,
    Method,
    MethodSession,
    Proposal,
)
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.code import authoring, checking, evaluating, selecting
from dressage_orchestrator.methods.code import spec as settings
from dressage_orchestrator.methods.code.candidates import (
    Candidate,
    as_json,
    as_text,
    best_of,
    from_json,
    from_message,
    sections,
    with_edits,
)
from dressage_orchestrator.methods.code.feedback import FeedbackClass
from dressage_orchestrator.methods.code.selecting import Contender
from dressage_orchestrator.models import USER


@dataclass(frozen=True)
class CodeProposal(Proposal):
    """The candidates of a round."""

    candidates: tuple[Candidate, ...] = ()

    @classmethod
    def of(cls, candidates: Sequence[Candidate], *, is_checked: bool = False) -> CodeProposal:
        """Return the proposal of candidates."""
        return cls(as_text([entry.source for entry in candidates]), is_checked=is_checked, candidates=tuple(candidates))


class CodeMethod(Method):
    """Policies in Python that a model writes in rounds."""

    name = settings.NAME
    spec_type: type[Message] = v1.CodeSpec

    def fill(self, spec: v1.SessionSpec) -> None:
        """Fill in the defaults of the profile."""
        settings.fill(spec)

    def validate(self, spec: v1.SessionSpec) -> None:
        """Reject an environment without code policies, a missing model, and a missing target."""
        settings.validate(spec)

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Estimate a round."""
        return settings.estimate(spec, episode_steps=episode_steps)

    async def check_edit(self, spec: v1.SessionSpec, text: str, *, judge: JudgeClient) -> None:
        """Reject a person's policy that does not pass its check."""
        environment = spec.environment.removeprefix("environments/")
        for number, source in sorted(sections(text).items()):
            request = judge_pb.CheckRequest(environment=environment, policy_source=source)
            request.act_seconds = spec.code.act_seconds
            report = await judge.check(request)
            if not report.ok:
                findings = checking.failure_lines(report.failures)
                message = f"proposal_source: candidate {number} does not pass its check: {findings}"
                raise InvalidArgument(message, field="proposal_source", reason=checking.REJECTED)

    def goal(self, spec: v1.SessionSpec) -> str:
        """Return the target."""
        return f"{settings.target(spec):g}"

    def text(self, iteration: v1.Iteration) -> str:
        """Return the best source of the round; before the evaluation, all candidates."""
        code = iteration.code
        return code.source or as_text([entry.source for entry in code.candidates])

    def open(self, context: SessionContext) -> CodeSession:
        """Return the code method's part of a session."""
        return CodeSession(context)


class CodeSession(MethodSession):
    """One session's rounds; one iteration is one round."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._feedback = FeedbackClass(context)
        self._winner: Contender | None = None
        self._confirmed: EvaluationResult | None = None

    def restore(self, number: int) -> CodeProposal | None:
        """Return the candidates whose evaluation an earlier epoch started, as they were after their check."""

        def look() -> Json:
            iteration = self._context.store.iteration(number)
            if not iteration.assignments or not iteration.code.candidates:
                return None
            author = iteration.author or self._context.spec.model
            return as_json([from_message(entry, author=author) for entry in iteration.code.candidates])

        candidates = self._context.step(f"resumed:{number}", look)
        return None if candidates is None else CodeProposal.of(from_json(candidates), is_checked=True)

    def adopt(self, number: int, directions: Directions) -> CodeProposal:
        """Return a person's policies as the only candidates of the round."""
        return CodeProposal.of(authoring.candidates_of(directions.proposal))

    def propose(self, number: int) -> CodeProposal:
        """Return the caller's policy, or the author's first candidates."""
        source = self._context.spec.code.policy_source
        if not source:
            return self.revise(number, Directions())
        author = v1.Iteration(author=USER)
        self._context.step(f"given:{number}", lambda: _update(self._context, number, author, "author"))
        return CodeProposal.of(authoring.candidates_of(source))

    def revise(self, number: int, directions: Directions) -> CodeProposal:
        """Return the author's candidates."""
        return CodeProposal.of(authoring.write(self._context, number, directions))

    def check(self, number: int, proposal: Proposal) -> CodeProposal:
        """Check and repair all candidates, and record them. Candidates that fail stay, with their failures."""
        assert isinstance(proposal, CodeProposal)
        candidates, tag = list(proposal.candidates), f"{number}:{proposal.version}"
        fresh = [index for index, entry in enumerate(candidates) if entry.playable]
        reviewed = checking.pass_checks(self._context, number, candidates, fresh, tag=tag)
        self._context.step(f"propose:{tag}", lambda: evaluating.record_proposal(self._context, number, reviewed))
        if proposal.version != "0":  # a person's text stays as it is, by which the approval recognises it
            return replace(proposal, candidates=tuple(reviewed))
        return CodeProposal.of(reviewed)

    def edit(self, proposal: Proposal, text: str) -> CodeProposal:
        """Return the candidates with a person's edits; a text without headers replaces candidate 1."""
        assert isinstance(proposal, CodeProposal)
        candidates = with_edits(proposal.candidates, text)
        return CodeProposal(text, f"{proposal.version}-edit", candidates=tuple(candidates))

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Play all candidates on the round's seeds and record the best one."""
        assert isinstance(proposal, CodeProposal)
        context, tag = self._context, f"{number}:{proposal.version}"
        played = evaluating.evaluate(context, number, proposal.candidates, self._feedback, tag=tag)
        context.step(f"record:{tag}", lambda: evaluating.record_results(context, number, played))
        chosen = best_of(played)
        if chosen is None:
            return EvaluationResult()
        score = played[chosen].score
        passed = settings.profile_of(context.spec).stop_at_target and score >= settings.target(context.spec)
        self._winner = Contender(number, played[chosen].source, score)
        return EvaluationResult(passed, score)

    def confirm(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Score the round's best policy on selection seeds and, if it reaches the target there, on report seeds."""
        context, target = self._context, settings.target(self._context.spec)
        assert self._winner is not None
        winner, score = selecting.select(context, [self._winner])
        if score < target:
            context.step(f"confirm:{number}", lambda: context.store.confirm(number, score=score))
            return EvaluationResult(score=score)
        score = selecting.play_report(context, winner)
        evaluated = EvaluationResult(score >= target, score)
        if evaluated.passed:
            self._confirmed = evaluated
        return evaluated

    def conclude(self) -> EvaluationResult | None:
        """Choose among the winners of all rounds, and score the choice on report seeds."""
        if self._confirmed is not None:
            return self._confirmed
        winners = selecting.contenders(self._context)
        if not winners:
            return None
        best = winners[0] if len(winners) == 1 else selecting.select(self._context, winners)[0]
        score = selecting.play_report(self._context, best)
        return EvaluationResult(score >= settings.target(self._context.spec), score)

    def deliverable(self) -> Deliverable | None:
        """Return the bundle and the median rollout of the last report."""
        best = self._context.store.get().best_iteration
        if not best:
            return None
        number = resource_names.parse_iteration(best)[1]
        row = selecting.last_report(self._context, number)
        if row is None:
            return None
        result = row.candidates[0]
        return Deliverable(number, result.policy, rollout=result.rollouts[0].artifact if result.rollouts else "")


def _update(context: SessionContext, number: int, changes: v1.Iteration, *paths: str) -> None:
    context.store.update_iteration(number, changes, paths)
