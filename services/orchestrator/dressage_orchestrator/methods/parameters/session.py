"""What all searches of the method share: evaluation, the score on report seeds, the best policy.

The incumbent of a session is the best candidate that an iteration kept, by its mean return on search seeds; of equals the
first. It is played again on report seeds, and this mean is the score of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import assignments, budget, report
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.method import Deliverable, EvaluationResult, MethodSession, Proposal
from dressage_orchestrator.methods.parameters import spec
from dressage_orchestrator.methods.parameters.form import Form, Values, key_of
from dressage_orchestrator.methods.parameters.variants import PROFILES

REPORT = "report"
"""First part of the ids of assignments that play a candidate on report seeds."""
_PROPOSAL_JSON = ("name", "number", "parent", "author", "diagnosis", "planned_change", "notes", "edited", "parameters")


@dataclass(frozen=True)
class Outcome:
    """What an iteration came to.

    :param chosen: number of the candidate that it keeps, from 1.
    :param score: its mean return on search seeds.
    :param passed: whether to play it on report seeds.
    :param confirmations: candidates that were played on report seeds before.
    """

    values: Values
    chosen: int
    score: float
    passed: bool
    confirmations: int

    @classmethod
    def of(cls, data: Json) -> Outcome:
        """Return the outcome of a step's result."""
        return cls(**{**data, "values": tuple(data["values"])})


class SearchSession(MethodSession):
    """The common part of the searches; see `MethodSession`."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._settings = context.spec.parameters
        self._profile = PROFILES[self._settings.profile]
        self._form = Form.of(context.spec, context.card)
        self._target = spec.target_of(context.spec, context.card)
        self._horizon = spec.horizon_of(context.spec, context.card)
        self._outcomes: dict[int, Outcome] = {}

    # Evaluation.

    def _task(
        self, candidates: Mapping[str, Values], *, seeds: Sequence[int], labels: Sequence[str] = ()
    ) -> work.Assignment:
        """Return the assignment that plays candidates, by id, on the seeds.

        :param labels: labels of the rollouts to record; ``first`` is that of the first seed.
        """
        # Batched: the engine's episodes equal stock Gymnasium's to the bit (decision 0039).
        task = work.EvaluateAssignment(environment=self._context.environment, seeds=seeds, batched=True)
        task.options.CopyFrom(self._context.spec.environment_options)
        task.policy.CopyFrom(self._form.policy)
        task.kept_rollouts = int("first" in labels)
        task.kept.extend(label for label in labels if label != "first")
        for name, values in candidates.items():
            task.candidates.add(id=name, parameters=work.Parameters(values=values))
        return work.Assignment(evaluate=task)

    def _finish(
        self, number: int, ident: str, step: str, then: Callable[[dict[str, v1.CandidateResult]], Json]
    ) -> Json:
        """Wait for an assignment of `_task`, and process its results, by id, in the step of that name.

        :raises FailedPrecondition: when a candidate cannot be played.
        """

        def process(row: AssignmentRow) -> Json:
            failures = [entry.failure for entry in row.assignment.candidates if entry.HasField("failure")]
            if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED or failures:
                failure = failures[0] if failures else row.assignment.failure
                message = f"the candidates of iteration {number} cannot be played: {failure.message}"
                raise FailedPrecondition(message, reason=failure.reason or "EVALUATION_FAILED")
            return then({entry.id: entry for entry in row.assignment.candidates})

        name = resource_names.assignment_name(self._context.session, number, ident)
        return assignments.finish(self._context, name, step, process)

    def _require_budget(self, *, episodes: int) -> None:
        """Check that a budget allows these episodes, as long as they can be. Only inside a step.

        :raises Exhausted: when it does not.
        """
        session, steps = self._context.store.get(), episodes * self._horizon
        if not session.spec.budget.env_steps:
            steps = 0
        budget.require(session, now=self._context.store.now(), next_env_steps=steps)

    # Records.

    def _record(self, number: int, changes: v1.Iteration, paths: Sequence[str]) -> v1.Iteration:
        """Change an iteration and write its files. Only inside a step."""
        iteration = self._context.store.update_iteration(number, changes, paths)
        self._write_files(number, iteration)
        return iteration

    def _write_files(self, number: int, iteration: v1.Iteration) -> None:
        """Write an iteration's parameters and proposal as artifacts."""
        self._write_parameters(number, iteration)
        whole = MessageToDict(iteration, preserving_proto_field_name=True)
        proposal = {key: whole[key] for key in _PROPOSAL_JSON if key in whole}
        self._context.put_json(number, "proposal.json", proposal, synced=False)

    def _write_parameters(self, number: int, iteration: v1.Iteration) -> None:
        policy = MessageToDict(self._form.policy, preserving_proto_field_name=True)
        values = list(iteration.parameters.values)
        self._context.put_json(number, "parameters.json", {"policy": policy, "values": values}, synced=False)

    def _outcome(self, number: int, values: Values, *, chosen: int, score: float) -> Json:
        """Return the outcome of an iteration as a step's result. Only inside a step."""
        iterations = self._context.store.iterations()
        key = key_of(values)
        refuted = any(
            entry.HasField("confirmed_score") and key_of(entry.parameters.values) == key
            for entry in iterations
            if entry.number < number
        )
        return {
            "values": values,
            "chosen": chosen,
            "score": score,
            "passed": score >= self._target and not refuted,
            "confirmations": _confirmations(iterations, besides=self._report_name(number, chosen)),
        }

    def _report_name(self, number: int, chosen: int) -> str:
        return resource_names.assignment_name(self._context.session, number, f"{REPORT}-{chosen}")

    # The score on report seeds.

    def _report(self, number: int, outcome: Outcome) -> v1.Report:
        """Play a candidate on report seeds, unless it was, and record its score as the session's."""
        result, _ = report.play(
            self._context,
            number,
            work.Candidate(parameters=work.Parameters(values=outcome.values)),
            ident=f"{REPORT}-{outcome.chosen}",
            policy=self._form.policy,
            episodes=self._settings.report_episodes,
            confirmations=outcome.confirmations + 1,
            provenance=self._provenance(number),
        )
        return result

    def _provenance(self, number: int) -> dict[str, str]:
        return {
            "intent": self._context.spec.intent,
            "iteration": self._context.iteration_name(number),
            "method": "parameters",
            "search": self._settings.search,
            "profile": self._settings.profile,
            "model": self._context.spec.model,
        }

    def confirm(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Play the candidate that the iteration kept on report seeds."""
        result = self._report(number, self._outcomes[number])
        return EvaluationResult(result.mean >= self._target, result.mean)

    def conclude(self) -> EvaluationResult | None:
        """Play the incumbent on report seeds; None if no candidate was evaluated."""
        incumbent = self._context.step("incumbent", self._incumbent)
        if incumbent is None:
            return None
        number = incumbent.pop("iteration")
        result = self._report(number, Outcome.of(incumbent))
        return EvaluationResult(result.mean >= self._target, result.mean)

    def _incumbent(self) -> Json:
        iterations = self._context.store.iterations()
        scored = [entry for entry in iterations if entry.HasField("score") and entry.parameters.values]
        if not scored:
            return None
        # One that reached the target on report seeds is not replaced by one that only did so on search seeds.
        confirmed = [e for e in scored if e.HasField("confirmed_score") and e.confirmed_score >= self._target]
        best = max(confirmed or scored, key=lambda entry: entry.score)
        outcome = Outcome(
            tuple(best.parameters.values),
            best.parameters.chosen,
            best.score,
            best.score >= self._target,
            _confirmations(iterations, besides=self._report_name(best.number, best.parameters.chosen)),
        )
        return {"iteration": best.number, **vars(outcome)}

    def deliverable(self) -> Deliverable | None:
        """Return the policy that was played on report seeds, with its median rollout."""
        store = self._context.store
        session = store.get()
        if not session.best_iteration or not session.HasField("report"):
            return None
        number = resource_names.parse_iteration(session.best_iteration)[1]
        name = self._report_name(number, store.iteration(number).parameters.chosen)
        results = store.assignment(name).assignment.candidates
        if not results or not results[0].policy:
            return None
        rollout = results[0].rollouts[0].artifact if results[0].rollouts else ""
        return Deliverable(number, results[0].policy, rollout=rollout)


def _confirmations(iterations: Sequence[v1.Iteration], *, besides: str) -> int:
    """Return the number of candidates that were played on report seeds, besides the one of this assignment."""
    names = {name for entry in iterations for name in entry.assignments}
    return sum(name.rpartition("/")[2].startswith(f"{REPORT}-") for name in names - {besides})
