"""A search by the trainer: programs to start from, then one or more stages in an iteration.

A stage is one `SearchAssignment`. It ends early when a program reaches the target on search states. If that program does not
reach it on report states as well, the next stage searches from another seed with the rest of the budget, without the programs
that did not hold.
"""

from __future__ import annotations

from dataclasses import replace

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition
from dressage.programs.families import PUBLISHED

from dressage_orchestrator.lifecycle import assignments, budget, report
from dressage_orchestrator.lifecycle.context import Json
from dressage_orchestrator.lifecycle.conversations import brief
from dressage_orchestrator.lifecycle.method import EvaluationResult, Proposal
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.program import seeding
from dressage_orchestrator.methods.program.session import Outcome, Programs, ProgramSession
from dressage_orchestrator.models import USER

STAGE = "search"
"""First part of the ids of the assignments of stages."""
_MAX_STAGES = 100
"""Of the programs that reach the target of CleanHouse on 32 search states, one in eight does on 32 report states."""
_SEED_STRIDE = 1000
"""Between the seeds of stages, so that sessions with consecutive seeds do not share searches."""
FROM_RANDOM = "random"


class ProgramSearch(ProgramSession):
    """A search in stages."""

    # Proposals.

    def restore(self, number: int) -> Programs | None:
        """Return the programs of the search that an earlier epoch started."""

        def look() -> Json:
            iteration = self._context.store.iteration(number)
            started = any(name.rpartition("/")[2].startswith(f"{STAGE}-") for name in iteration.assignments)
            return list(iteration.program.programs) if started else None

        programs = self._context.step(f"resumed:{number}", look)
        return None if programs is None else self._proposal(tuple(programs), is_checked=True)

    def adopt(self, number: int, directions: Directions) -> Programs:
        """Return a person's programs to start from."""
        return self._proposal(seeding.parse_text(self._task, directions.proposal, field="proposal_source"))

    def revise(self, number: int, directions: Directions) -> Programs:
        """Return programs to start from; each iteration searches from another seed."""
        if not self._settings.seed_programs:
            self._begin_from_random(number, "the setting seed_programs is 0", warn=False)
            return self._proposal(())

        def request(task: agent_pb.Task, reply: int) -> None:
            task.program_author.task = self._context.environment
            task.program_author.form, task.program_author.reply = self._settings.prompt, reply
            task.program_author.brief.CopyFrom(brief(self._context))

        collected = seeding.collect(self._context, number, "program_author", request)
        if not collected.programs:
            self._begin_from_random(number, collected.problem, warn=True)
            return self._proposal(())
        model = collected.model or self._context.spec.model
        self._context.step(f"author:{number}", lambda: self._set_author(number, model))
        published = self._settings.profile == PUBLISHED  # there, a program that was written twice is climbed from twice
        return self._proposal(collected.programs if published else collected.distinct)

    def _begin_from_random(self, number: int, cause: str, *, warn: bool) -> None:
        """Record that a search has no programs to start from, with a warning if it should have had some."""
        message = f"{self._settings.search} starts from random programs: {cause}"

        def record() -> None:
            self._set_author(number, FROM_RANDOM)
            if warn:
                self._context.store.warn("NO_SEED_PROGRAMS", message, iteration=number, key=f"random/{number}")

        self._context.step(f"random:{number}", record)

    def _set_author(self, number: int, author: str) -> None:
        self._context.store.update_iteration(number, v1.Iteration(author=author), ["author"])

    def edit(self, proposal: Proposal, text: str) -> Programs:
        """Return a person's programs, which replace those to start from."""
        assert isinstance(proposal, Programs)
        programs = seeding.parse_text(self._task, text, field="proposal_source")
        return replace(proposal, text=text, version=f"{proposal.version}-edit", programs=programs)

    def _proposal(self, programs: tuple[str, ...], *, is_checked: bool = False) -> Programs:
        return Programs(
            seeding.as_text(programs, search=self._settings.search), is_checked=is_checked, programs=programs
        )

    def check(self, number: int, proposal: Proposal) -> Programs:
        """Record the programs to start from."""
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

    # Evaluation.

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Search, and play the best program on report states whenever it reaches the target."""
        assert isinstance(proposal, Programs)
        stage, used, refuted = 1, 0, set[str]()
        while True:
            starts = [text for text in proposal.programs if text not in refuted]
            state = self._stage(number, stage, used, starts)
            used = state["evaluated"]
            self._outcomes[number] = Outcome(**state["outcome"])
            latest = Outcome(**state["latest"])
            if state["reached"] and self._is_confirmed(number, latest):
                return EvaluationResult(passed=True, score=latest.score)
            refuted.add(latest.program)
            if used >= self._settings.budget or not state["reached"] or stage >= _MAX_STAGES:
                return EvaluationResult(passed=False, score=state["outcome"]["score"])
            stage += 1

    def _is_confirmed(self, number: int, latest: Outcome) -> bool:
        """Play the best program of a stage on report states; whether it reaches the target there as well."""
        mean_return = self._report(number, latest).mean
        if mean_return >= self._threshold:
            self._outcomes[number] = latest
            self._context.step(f"settle:{number}:{latest.chosen}", lambda: self._choose(number, latest.chosen))
            return True
        message = (
            f"a program with a mean return of {latest.score:.4g} on search states has {mean_return:.4g} on report states, "
            f"below {self._settings.target:g}: the rest of the budget is searched from another seed"
        )
        self._context.step(
            f"warn:stage:{number}:{latest.chosen}",
            lambda: self._context.store.warn(
                "NOT_CONFIRMED", message, iteration=number, key=f"confirm:{number}:{latest.chosen}"
            ),
        )
        return False

    def _choose(self, number: int, chosen: int) -> None:
        iteration = self._context.store.iteration(number)
        self._keep(iteration, chosen)
        self._record(number, iteration, ["program", "score"])

    def _stage(self, number: int, stage: int, used: int, starts: list[str]) -> Json:
        """Run one stage and record it.

        :param used: programs that the earlier stages evaluated.
        """
        self._context.step(f"afford:{number}:{stage}", self._require_budget)
        name = assignments.assign(
            self._context, number, f"{STAGE}-{stage}", work.Assignment(search=self._work(number, stage, used, starts))
        )
        try:
            row = assignments.wait(self._context, name)
        except Exhausted:
            # The best program so far is recorded, so that it can be delivered.
            self._context.step(f"cut:{number}:{stage}", lambda: self._record_cut(number, name, used))
            raise
        if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED:
            failure = row.assignment.failure
            message = f"the search of iteration {number} failed: {failure.message}"
            metadata = {"remedy": failure.remedy} if failure.remedy else {}
            raise FailedPrecondition(message, reason=failure.reason or "SEARCH_FAILED", metadata=metadata)
        result = row.assignment.search
        state: Json = self._context.step(f"stage:{number}:{stage}", lambda: self._record_stage(number, result, used))
        return state

    def _require_budget(self) -> None:
        """:raises Exhausted: when a budget of the session is used up. Only inside a step."""
        budget.require(self._context.store.get(), now=self._context.store.now())

    def _work(self, number: int, stage: int, used: int, starts: list[str]) -> work.SearchAssignment:
        settings = self._settings
        states = self._task.search_states(settings.search_states)
        task = work.SearchAssignment(
            environment=self._context.environment,
            algorithm=settings.search,
            budget=settings.budget - used,
            episodes=len(states),
            episode_seed=states[0],
            seed=self._context.spec.seed + _SEED_STRIDE * (stage - 1) + number - 1,
            target=self._threshold,
            checkpoint_seconds=self._context.engine.settings.checkpoint_seconds,
        )
        task.program.profile, task.program.neighbours = settings.profile, settings.neighbours
        task.program.programs.extend(starts[: settings.budget - used])
        task.program.schedule.CopyFrom(settings.schedule)
        return task

    def _record_stage(self, number: int, result: v1.SearchResult, used: int) -> Json:
        """Record a stage; return the outcome of the iteration so far and of this stage. Only inside a step.

        A stage that a budget cut off is recorded once more when a resumed session has completed it.
        """
        iteration = self._context.store.iteration(number)
        proposal, total = iteration.program, used + result.evaluated
        if proposal.search.evaluated < total:  # otherwise an earlier epoch, or this step before a crash, recorded it
            report.count(
                self._context,
                evaluated=total - max(used, proposal.search.evaluated),
                episodes=result.episodes,
                cache_hits=result.cache_hits,
                key=f"{number}:{total}",
            )
            evaluated = used + (result.improvements[-1].evaluated if result.improvements else result.evaluated)
            if not any(candidate.evaluated == evaluated for candidate in proposal.candidates):
                proposal.candidates.add(program=result.best_program, mean_return=result.best_score, evaluated=evaluated)
            _merge(proposal.search, result, used)
            scores = [candidate.mean_return for candidate in proposal.candidates]
            self._keep(iteration, scores.index(max(scores)) + 1)
            self._record(number, iteration, ["program", "score"])
            self._context.store.set_best(number, v1.Session(), score=iteration.score)
        chosen = max(n for n, one in enumerate(proposal.candidates, start=1) if used < one.evaluated <= total)
        latest = proposal.candidates[chosen - 1]
        return {
            "evaluated": total,
            "reached": latest.mean_return >= self._threshold,
            "latest": {"program": latest.program, "chosen": chosen, "score": latest.mean_return},
            "outcome": self._outcome(iteration),
        }

    def _record_cut(self, number: int, name: str, used: int) -> None:
        result = self._context.store.assignment(name).assignment.search
        if result.best_program:
            self._record_stage(number, result, used)


def _merge(total: v1.SearchResult, added: v1.SearchResult, used: int) -> None:
    """Add the result of a stage, which replaces what was recorded when it was cut off; improvements are those of all stages."""
    before = [entry for entry in total.improvements if entry.evaluated <= used]
    del total.improvements[:]
    total.improvements.extend(before)
    for entry in added.improvements:
        if not total.improvements or entry.score > total.improvements[-1].score:
            total.improvements.add(evaluated=used + entry.evaluated, score=entry.score)
    if not total.best_program or added.best_score > total.best_score:
        total.best_score, total.best_program = added.best_score, added.best_program
    total.evaluated = used + added.evaluated
    total.episodes += added.episodes
    total.cache_hits += added.cache_hits
