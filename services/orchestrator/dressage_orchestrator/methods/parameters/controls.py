"""A search without a model: the trainer searches, one or more stages in an iteration.

A stage is one `SearchAssignment`. It ends early when a candidate reaches the target on search seeds. If that candidate does not
reach it on report seeds as well, the next stage searches from another seed with the rest of the episode budget, and to its end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition
from dressage.statistics import mean

from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import assignments, budget, report
from dressage_orchestrator.lifecycle.context import Json
from dressage_orchestrator.lifecycle.method import EvaluationResult, Proposal
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.parameters import spec
from dressage_orchestrator.methods.parameters.form import Values, as_text
from dressage_orchestrator.methods.parameters.session import Outcome, SearchSession
from dressage_orchestrator.models import TEMPLATE, USER

STAGE = "search"
"""First part of the ids of the assignments of stages."""
GIVEN = "given"
"""Id of the assignment that plays a person's parameters."""
_SEED_STRIDE = 1000
"""Between the seeds of stages, so that sessions with consecutive seeds do not share searches."""


@dataclass(frozen=True)
class Search(Proposal):
    """The search of an iteration, or the parameters of a person to play instead.

    :param values: a person's parameters; None: search.
    """

    values: Values | None = None


class ControlSearch(SearchSession):
    """A search without a model."""

    def begin(self, first: int) -> None:
        """Warn that the words of the intent have no effect."""
        search, model = self._settings.search, self._context.spec.model
        message = (
            f"search {search!r} uses no language model and ignores the words of the intent: it maximises the return of "
            f"{self._context.environment}."
        )
        if model in ("", TEMPLATE):
            message += " For a search with a model, set the key of a provider, or choose a model."
        self._context.step("warn:search", lambda: self._context.store.warn("INTENT_IGNORED", message, key="search"))

    # Proposals.

    def restore(self, number: int) -> Search | None:
        """Return the search that an earlier epoch started."""

        def look() -> Json:
            iteration = self._context.store.iteration(number)
            ids = [name.rpartition("/")[2] for name in iteration.assignments]
            if GIVEN in ids:
                return {"values": list(iteration.parameters.values)}
            return {"values": None} if any(ident.startswith(f"{STAGE}-") for ident in ids) else None

        state = self._context.step(f"resumed:{number}", look)
        if state is None:
            return None
        values = None if state["values"] is None else tuple(state["values"])
        return Search(self._text(number, values), is_checked=True, values=values)

    def adopt(self, number: int, directions: Directions) -> Search:
        """Return a person's parameters."""
        values = self._form.parse(directions.proposal, field="proposal_source")
        return Search(as_text(values), values=values)

    def revise(self, number: int, directions: Directions) -> Search:
        """Return the search; each iteration searches from another seed."""
        return Search(self._text(number, None))

    def edit(self, proposal: Proposal, text: str) -> Search:
        """Return a person's parameters, which replace the search."""
        assert isinstance(proposal, Search)
        values = self._form.parse(text, field="proposal_source")
        return replace(proposal, text=as_text(values), version=f"{proposal.version}-edit", values=values)

    def _text(self, number: int, values: Values | None) -> str:
        if values is not None:
            return as_text(values)
        settings = self._settings
        facts = {"search": settings.search, "candidates": spec.candidates_of(settings), "episodes": settings.episodes}
        return json.dumps(facts | {"seed": self._seed(number, 1)})

    def _seed(self, number: int, stage: int) -> int:
        return int(self._context.spec.seed + _SEED_STRIDE * (stage - 1) + number - 1)

    def check(self, number: int, proposal: Proposal) -> Search:
        """Record what the iteration does."""
        assert isinstance(proposal, Search)

        def check() -> None:
            changes = v1.Iteration(author=USER if proposal.values else self._settings.search)
            changes.parameters.values.extend(proposal.values or ())
            if number > 1:
                changes.parent = self._context.iteration_name(number - 1)
            self._record(number, changes, ["author", "parent", "parameters"])

        self._context.step(f"check:{number}:{proposal.version}", check)
        return proposal

    # Evaluation.

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Search, and play the best candidate on report seeds whenever it reaches the target."""
        assert isinstance(proposal, Search)
        if proposal.values is not None:
            return self._evaluate_user_values(number, proposal.values)
        stage, used = 1, 0
        while True:
            state = self._stage(number, stage, used)
            outcome, used = Outcome.of(state["outcome"]), state["evaluated"]
            self._outcomes[number] = outcome
            if state["reached"] and self._is_confirmed(number, stage, Outcome.of(state["latest"])):
                return EvaluationResult(passed=True, score=state["latest"]["score"])
            if used >= spec.candidates_of(self._settings) or not state["reached"]:
                return EvaluationResult(passed=False, score=outcome.score)
            stage += 1

    def _is_confirmed(self, number: int, stage: int, latest: Outcome) -> bool:
        """Play the best candidate of a stage on report seeds; whether it reaches the target there as well.

        It is the same call as that of `confirm`, so that the lifecycle's confirmation plays nothing again.
        """
        mean_return = self._report(number, latest).mean
        if mean_return < self._target:
            self._warn_unconfirmed(number, stage, latest.score, mean_return)
            return False
        self._outcomes[number] = latest
        self._context.step(f"settle:{number}:{stage}", lambda: self._choose(number, latest))
        return True

    def _evaluate_user_values(self, number: int, values: Values) -> EvaluationResult:
        seeds = report.search_seeds(self._context.spec, self._settings.episodes)

        def begin() -> None:
            self._require_budget(episodes=len(seeds))
            assignments.start(self._context, number, GIVEN, self._task({"1": values}, seeds=seeds))

        def record(results: dict[str, v1.CandidateResult]) -> Json:
            returns = list(results["1"].returns)
            iteration = self._context.store.iteration(number)
            if not iteration.parameters.candidates:
                report.count(self._context, evaluated=1, episodes=len(returns), cache_hits=0, key=f"{number}:{GIVEN}")
            del iteration.parameters.candidates[:]
            iteration.parameters.candidates.add(values=values, origin=USER, mean_return=mean(returns), returns=returns)
            iteration.parameters.chosen, iteration.parameters.episodes = 1, len(returns)
            iteration.score = mean(returns)
            self._record(number, iteration, ["parameters", "score"])
            self._context.store.set_best(number, v1.Session(), score=iteration.score)
            return self._outcome(number, values, chosen=1, score=iteration.score)

        self._context.step(f"start:{number}:{GIVEN}", begin)
        outcome = Outcome.of(self._finish(number, GIVEN, f"record:{number}", record))
        self._outcomes[number] = outcome
        return EvaluationResult(outcome.passed, outcome.score)

    def _stage(self, number: int, stage: int, used: int) -> Json:
        """Run one stage and record it.

        :param used: candidates of the earlier stages.
        """
        candidates = self._context.step(f"afford:{number}:{stage}", lambda: self._affordable(used))
        task = self._assignment(number, stage, candidates)
        ident = f"{STAGE}-{stage}"
        name = assignments.assign(self._context, number, ident, work.Assignment(search=task))
        try:
            row = assignments.wait(self._context, name, kind=spec.kind_of_run(self._context.spec))
        except Exhausted:
            # The best candidate so far is recorded, so that it can be delivered.
            self._context.step(f"cut:{number}:{stage}", lambda: self._record_cut(number, stage, name, used))
            raise
        if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED:
            failure = row.assignment.failure
            message = f"the search of iteration {number} failed: {failure.message}"
            metadata = {"remedy": failure.remedy} if failure.remedy else {}
            raise FailedPrecondition(message, reason=failure.reason or "SEARCH_FAILED", metadata=metadata)
        state: Json = self._context.step(
            f"stage:{number}:{stage}", lambda: self._record_stage(number, stage, row.assignment.search, used)
        )
        return state

    def _affordable(self, used: int) -> int:
        """Return how many candidates the budgets allow. Only inside a step.

        :raises Exhausted: for none.
        """
        self._require_budget(episodes=self._settings.episodes)
        remaining = spec.candidates_of(self._settings) - used
        session = self._context.store.get()
        if session.spec.budget.env_steps:
            steps = self._settings.episodes * self._horizon
            remaining = min(remaining, (session.spec.budget.env_steps - session.env_steps) // steps)
        budget.require(session, now=self._context.store.now())
        return int(remaining)

    def _assignment(self, number: int, stage: int, candidates: int) -> work.SearchAssignment:
        settings = self._settings
        task = work.SearchAssignment(
            environment=self._context.environment,
            algorithm=settings.search,
            budget=candidates,
            episodes=settings.episodes,
            seed=self._seed(number, stage),
            episode_seed=report.search_seeds(self._context.spec, settings.episodes)[0],
            scale=settings.step_size if settings.search == "cma_es" else self._form.spread,
            checkpoint_seconds=self._context.engine.settings.checkpoint_seconds,
            range=self._form.range,
            step_size=settings.step_size,
        )
        task.options.CopyFrom(self._context.spec.environment_options)
        task.policy.CopyFrom(self._form.policy)
        if stage == 1:
            task.target = self._target
        return task

    # The record.

    def _record_stage(self, number: int, stage: int, result: v1.SearchResult, used: int) -> Json:
        """Record a stage; return the outcomes of the iteration so far and of this stage. Only inside a step."""
        iteration = self._context.store.iteration(number)
        proposal = iteration.parameters
        if len(proposal.candidates) < stage:  # otherwise an earlier epoch, or this step before a crash, recorded it
            key = f"{number}:{stage}"
            report.count(self._context, evaluated=result.evaluated, episodes=result.episodes, cache_hits=0, key=key)
            proposal.candidates.add(
                values=self._values(result), origin=self._settings.search, mean_return=result.best_score
            )
            proposal.episodes += result.episodes
            proposal.search.CopyFrom(_merge(proposal.search, result))
            best = max(range(stage), key=lambda index: (proposal.candidates[index].mean_return, -index))
            self._set_chosen(iteration, best + 1)
            self._record(number, iteration, ["parameters", "score"])
            self._context.store.set_best(number, v1.Session(), score=iteration.score)
        latest = proposal.candidates[stage - 1]
        reached = latest.mean_return >= self._target
        chosen = proposal.chosen
        return {
            "evaluated": used + result.evaluated,
            "reached": reached,
            "latest": self._outcome(number, tuple(latest.values), chosen=stage, score=latest.mean_return),
            "outcome": self._outcome(number, tuple(proposal.values), chosen=chosen, score=iteration.score),
        }

    def _values(self, result: v1.SearchResult) -> Values:
        if not result.best_parameters:
            raise FailedPrecondition("the search has no candidate", reason="SEARCH_EMPTY")
        return tuple(result.best_parameters)

    @staticmethod
    def _set_chosen(iteration: v1.Iteration, chosen: int) -> None:
        candidate = iteration.parameters.candidates[chosen - 1]
        iteration.parameters.chosen = chosen
        iteration.parameters.values[:] = candidate.values
        iteration.score = candidate.mean_return

    def _choose(self, number: int, latest: Outcome) -> None:
        """Record the candidate that reached the target on report seeds as the iteration's. Only inside a step."""
        iteration = self._context.store.iteration(number)
        self._set_chosen(iteration, latest.chosen)
        self._record(number, iteration, ["parameters", "score"])

    def _record_cut(self, number: int, stage: int, name: str, used: int) -> None:
        row: AssignmentRow = self._context.store.assignment(name)
        result = row.assignment.search
        if result.best_parameters:
            result.episodes = result.evaluated * self._settings.episodes
            self._record_stage(number, stage, result, used)

    def _warn_unconfirmed(self, number: int, stage: int, score: float, mean_return: float) -> None:
        message = (
            f"a candidate with a mean return of {score:.2f} on search seeds has {mean_return:.2f} on report seeds, below "
            f"{self._target:g}: the search continues"
        )
        self._context.step(
            f"warn:stage:{number}:{stage}",
            lambda: self._context.store.warn(
                "NOT_CONFIRMED", message, iteration=number, key=f"confirm:{number}:{stage}"
            ),
        )


def _merge(before: v1.SearchResult, added: v1.SearchResult) -> v1.SearchResult:
    """Return the result of two stages as one; improvements of the second one are counted from its start."""
    merged = v1.SearchResult()
    merged.CopyFrom(before)
    for entry in added.improvements:
        if not before.evaluated or entry.score > before.best_score:
            merged.improvements.add(evaluated=before.evaluated + entry.evaluated, score=entry.score)
    if not before.evaluated or added.best_score > before.best_score:
        merged.best_score = added.best_score
        merged.best_parameters[:] = added.best_parameters
    merged.evaluated = before.evaluated + added.evaluated
    merged.episodes = before.episodes + added.episodes
    merged.env_steps = before.env_steps + added.env_steps
    return merged
