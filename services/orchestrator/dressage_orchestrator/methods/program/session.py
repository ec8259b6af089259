"""What searches and revisions share: the program that an iteration keeps, its score on report states, the bundle.

The incumbent of a session is the best program that an iteration kept, by its mean return on search states; of equals the first.
It is played on report states, and this mean is the score of the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import resource_names
from dressage_orchestrator.lifecycle import report
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.method import Deliverable, EvaluationResult, MethodSession, Proposal
from dressage_orchestrator.methods.program import spec

REPORT = "report"
"""First part of the ids of assignments that play a program on report states."""


@dataclass(frozen=True)
class Outcome:
    """What an iteration came to.

    :param chosen: number of the candidate that it keeps, from 1.
    :param score: its mean return on search states.
    """

    program: str
    chosen: int
    score: float


@dataclass(frozen=True)
class Programs(Proposal):
    """The programs of an iteration: the starts of a search, or a round of revisions."""

    programs: tuple[str, ...] = ()


class ProgramSession(MethodSession):
    """The common part; see `MethodSession`."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._settings = context.spec.program
        self._task = spec.task_of(context.spec)
        self._threshold = spec.threshold_of(context.spec)
        self._outcomes: dict[int, Outcome] = {}

    def begin(self, first: int) -> None:
        """Record what the user should know of the language's speed."""
        note = self._task.family.note
        if note:  # a step less for the others, whose sessions may have begun before an upgrade
            message = f"{self._task.environment}: {note}"
            self._context.step(
                f"note:{first}",
                lambda: self._context.store.warn("SLOW_LANGUAGE", message, key="language") and None,
            )

    # Records.

    def _record(self, number: int, changes: v1.Iteration, paths: Sequence[str]) -> None:
        """Change an iteration and write its files. Only inside a step."""
        iteration = self._context.store.update_iteration(number, changes, paths)
        if iteration.program.program:
            self._context.put_text(number, "program.txt", iteration.program.program + "\n")
        whole = MessageToDict(iteration, preserving_proto_field_name=True)
        keys = ("name", "number", "parent", "author", "notes", "edited", "program")
        self._context.put_json(number, "proposal.json", {key: whole[key] for key in keys if key in whole})

    def _keep(self, iteration: v1.Iteration, chosen: int) -> None:
        """Set the candidate that an iteration keeps."""
        candidate = iteration.program.candidates[chosen - 1]
        iteration.program.chosen, iteration.program.program = chosen, candidate.program
        iteration.score = candidate.mean_return

    def _outcome(self, iteration: v1.Iteration) -> Json:
        return {"program": iteration.program.program, "chosen": iteration.program.chosen, "score": iteration.score}

    # The score on report states.

    def _report(self, number: int, outcome: Outcome) -> v1.Report:
        """Play a program on report states, unless it was, and record its score as the session's."""
        name = self._report_name(number, outcome.chosen)
        confirmations = self._context.step(
            f"confirmations:{number}:{outcome.chosen}", lambda: self._confirmations(name)
        )
        result, _ = report.play(
            self._context,
            number,
            work.Candidate(program=outcome.program),
            ident=f"{REPORT}-{outcome.chosen}",
            episodes=self._settings.report_states,
            states=self._task.report_states(self._settings.report_states),
            profile=self._settings.profile,
            confirmations=confirmations,
            provenance=self._provenance(number),
        )
        return result

    def _report_name(self, number: int, chosen: int) -> str:
        return resource_names.assignment_name(self._context.session, number, f"{REPORT}-{chosen}")

    def _confirmations(self, name: str) -> int:
        """Return the number of programs that were played on report states, with this one."""
        names = {entry for iteration in self._context.store.iterations() for entry in iteration.assignments}
        return 1 + sum(other.rpartition("/")[2].startswith(f"{REPORT}-") for other in names - {name})

    def _provenance(self, number: int) -> dict[str, str]:
        return {
            "intent": self._context.spec.intent,
            "iteration": self._context.iteration_name(number),
            "method": spec.NAME,
            "search": self._settings.search,
            "model": self._context.spec.model,
        }

    def confirm(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Play the program that the iteration kept on report states."""
        result = self._report(number, self._outcomes[number])
        return EvaluationResult(result.mean >= self._threshold, result.mean)

    def conclude(self) -> EvaluationResult | None:
        """Play the incumbent on report states; None if no program was evaluated."""
        incumbent = self._context.step("incumbent", self._incumbent)
        if incumbent is None:
            return None
        number = incumbent.pop("iteration")
        result = self._report(number, Outcome(**incumbent))
        return EvaluationResult(result.mean >= self._threshold, result.mean)

    def _incumbent(self) -> Json:
        scored = [e for e in self._context.store.iterations() if e.HasField("score") and e.program.program]
        if not scored:
            return None
        # One that reached the target on report states is not replaced by one that only did so on search states.
        confirmed = [e for e in scored if e.HasField("confirmed_score") and e.confirmed_score >= self._threshold]
        best = max(confirmed or scored, key=lambda entry: entry.score)
        return {"iteration": best.number, **self._outcome(best)}

    def deliverable(self) -> Deliverable | None:
        """Return the program that was played on report states."""
        store = self._context.store
        session = store.get()
        if not session.best_iteration or not session.HasField("report"):
            return None
        number = resource_names.parse_iteration(session.best_iteration)[1]
        name = self._report_name(number, store.iteration(number).program.chosen)
        results = store.assignment(name).assignment.candidates
        return Deliverable(number, results[0].policy) if results and results[0].policy else None
