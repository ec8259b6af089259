"""Rounds of a model's programs without a search. A round is an iteration: the model writes programs, all are played.

`regeneration` shows all programs of the last round, `regeneration_with_reward` also their returns, the two others an episode of
the best one from the search state with the lowest return.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import assignments, report
from dressage_orchestrator.lifecycle.context import Json
from dressage_orchestrator.lifecycle.conversations import brief
from dressage_orchestrator.lifecycle.method import EvaluationResult, Proposal
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.program import seeding, spec
from dressage_orchestrator.methods.program.session import Outcome, Programs, ProgramSession
from dressage_orchestrator.models import USER

ROUND = "round"
"""Id of the assignment that plays the programs of a round."""
_MAX_TRIALS = 256
"""Programs of a prompt, at most."""


class Revisions(ProgramSession):
    """Rounds of a model's revisions."""

    def restore(self, number: int) -> Programs | None:
        """Return the programs whose evaluation an earlier epoch started."""

        def look() -> Json:
            iteration = self._context.store.iteration(number)
            started = any(name.rpartition("/")[2] == ROUND for name in iteration.assignments)
            return list(iteration.program.programs) if started else None

        programs = self._context.step(f"resumed:{number}", look)
        return None if not programs else self._proposal(programs, is_checked=True)

    def adopt(self, number: int, directions: Directions) -> Programs:
        """Return a person's programs."""
        return self._proposal(seeding.parse_text(self._task, directions.proposal, field="proposal_source"))

    def edit(self, proposal: Proposal, text: str) -> Programs:
        """Return a person's programs, which replace those of the round."""
        programs = seeding.parse_text(self._task, text, field="proposal_source")
        return Programs("\n".join(programs), version=f"{proposal.version}-edit", programs=programs)

    def _proposal(self, programs: Sequence[str], *, is_checked: bool = False) -> Programs:
        return Programs("\n".join(programs), is_checked=is_checked, programs=tuple(programs))

    def revise(self, number: int, directions: Directions) -> Programs:
        """Return a round of programs.

        :raises Exhausted: when the model has no further programs.
        """
        # A step of its own: the request must not change between a crash and the repetition of the calls.
        revision = self._context.message_step(
            f"revision:{number}", agent_pb.ProgramReviserTask, lambda: self._revision(number)
        )

        def request(task: agent_pb.Task, reply: int) -> None:
            if revision.trials:
                task.program_reviser.CopyFrom(revision)
                task.program_reviser.reply = reply
            else:
                task.program_author.brief.CopyFrom(brief(self._context))
                task.program_author.task, task.program_author.reply = self._context.environment, reply
                task.program_author.form = self._settings.prompt

        role = "program_reviser" if revision.trials else "program_author"
        collected = seeding.collect(self._context, number, role, request)
        if not collected.programs:
            message = f"the model has no programs for round {number}: {collected.problem}"
            if number > 1:
                raise Exhausted(message)
            raise FailedPrecondition(message, reason="NO_PROGRAMS")
        model = collected.model
        self._context.step(
            f"author:{number}",
            lambda: self._context.store.update_iteration(number, v1.Iteration(author=model), ["author"]) and None,
        )
        return self._proposal(collected.distinct)

    def _revision(self, number: int) -> agent_pb.ProgramReviserTask:
        """Return the task of a revision of the last round; without trials if there is none. Only inside a step."""
        variant = self._settings.search
        task = agent_pb.ProgramReviserTask(task=self._context.environment, variant=variant, brief=brief(self._context))
        earlier = [e for e in self._context.store.iterations() if e.number < number and e.program.candidates]
        if not earlier:
            return task
        last = earlier[-1]
        candidates = list(last.program.candidates)
        if variant in spec.TRACED:
            candidates = [candidates[last.program.chosen - 1]]
            name = resource_names.assignment_name(self._context.session, last.number, ROUND)
            results = {entry.id: entry.trace for entry in self._context.store.assignment(name).assignment.candidates}
            task.trace = results.get(str(last.program.chosen), "")
        for candidate in candidates[:_MAX_TRIALS]:
            task.trials.add(program=candidate.program, mean_return=candidate.mean_return)
        return task

    def check(self, number: int, proposal: Proposal) -> Programs:
        """Record the programs of the round."""
        assert isinstance(proposal, Programs)

        def check() -> None:
            iteration = self._context.store.iteration(number)
            changes = v1.Iteration(author=USER if "proposal" in iteration.edited else iteration.author)
            changes.program.programs.extend(proposal.programs)
            changes.program.origin = changes.author
            if number > 1:
                changes.parent = self._context.iteration_name(number - 1)
            self._record(number, changes, ["author", "parent", "program"])

        self._context.step(f"check:{number}:{proposal.version}", check)
        return proposal

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Play all programs of the round on the search states."""
        assert isinstance(proposal, Programs)
        task = work.EvaluateAssignment(
            environment=self._context.environment,
            seeds=self._task.search_states(self._settings.search_states),
            profile=self._settings.profile,
            trace=self._settings.search if self._settings.search in spec.TRACED else "",
        )
        for index, program in enumerate(proposal.programs, start=1):
            task.candidates.add(id=str(index), program=program)
        name = assignments.assign(self._context, number, ROUND, work.Assignment(evaluate=task))
        outcome = Outcome(
            **assignments.finish(
                self._context, name, f"record:{number}", lambda row: self._record_round(number, row, proposal.programs)
            )
        )
        self._outcomes[number] = outcome
        return EvaluationResult(outcome.score >= self._threshold, outcome.score)

    def _record_round(self, number: int, row: AssignmentRow, programs: Sequence[str]) -> Json:
        results = {entry.id: entry for entry in row.assignment.candidates}
        failures = [entry.failure for entry in results.values() if entry.HasField("failure")]
        if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED or len(failures) == len(programs):
            failure = failures[0] if failures else row.assignment.failure
            message = f"the programs of round {number} cannot be played: {failure.message}"
            raise FailedPrecondition(message, reason=failure.reason or "EVALUATION_FAILED")
        iteration = self._context.store.iteration(number)
        if not iteration.program.candidates:
            earlier = self._earlier(number)
            for index, program in enumerate(programs, start=1):
                returns = results[str(index)].returns
                mean = sum(returns) / len(returns) if returns else float("-inf")
                iteration.program.candidates.add(
                    program=program, mean_return=max(mean, -1e9), duplicate_of=earlier.get(program, 0)
                )
            candidates = iteration.program.candidates
            best = max(range(len(candidates)), key=lambda index: (candidates[index].mean_return, -index))
            self._keep(iteration, best + 1)
            episodes = sum(len(entry.returns) for entry in results.values())
            report.count(
                self._context, evaluated=len(programs), episodes=episodes, cache_hits=0, key=f"{number}:{ROUND}"
            )
            self._record(number, iteration, ["program", "score"])
            self._context.store.set_best(number, v1.Session(), score=iteration.score)
        return self._outcome(iteration)

    def _earlier(self, number: int) -> dict[str, int]:
        """Return the iteration that evaluated a program first, by program."""
        first: dict[str, int] = {}
        for iteration in self._context.store.iterations():
            if iteration.number < number:
                for candidate in iteration.program.candidates:
                    first.setdefault(candidate.program, iteration.number)
        return first
