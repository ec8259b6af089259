"""A search with a model: propose, evaluate, revise, evaluate, keep the better candidate.

One engine for all variants (`variants`). In one iteration the steps are: the proposer's call; the start of the first
evaluation; its result, the second call with its evidence, and the start of the second evaluation; its result and the record.
Each result is in a step or in an assignment with a fixed name: no finished candidate of an interrupted session is played again.

A candidate that was evaluated before is not played again: its recorded returns count, and the cache hit is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.statistics import mean

from dressage_orchestrator.lifecycle import assignments, report
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import brief, converse_all, key_of
from dressage_orchestrator.lifecycle.method import EvaluationResult, Proposal
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.parameters.evidence import EvidenceReader
from dressage_orchestrator.methods.parameters.form import (
    BOUNDED,
    SKIPPED,
    Values,
    as_text,
    bound_revision,
    limits_revision,
)
from dressage_orchestrator.methods.parameters.form import key_of as identity
from dressage_orchestrator.methods.parameters.history import CRITIC, SEARCH, WARMUP, History, Trial, read
from dressage_orchestrator.methods.parameters.session import Outcome, SearchSession
from dressage_orchestrator.methods.parameters.tasks import Prompts
from dressage_orchestrator.methods.parameters.variants import VARIANTS
from dressage_orchestrator.models import USER

FIRST, SECOND = "first", "second"
"""Ids of the assignments of an iteration."""
_WARMUP_SEED = 7
_MAX_TEXT = 2000
Results = Mapping[str, v1.CandidateResult]
"""Results of candidates by their number in the iteration."""


@dataclass(frozen=True)
class Candidates(Proposal):
    """The first candidates of an iteration: one, or two that are proposed at the same time.

    :param duplicates: for each candidate, the number of the iteration that evaluated it before; 0: none.
    :param explanations: for each candidate, the model's explanation.
    :param notes: notes of people for this iteration.
    :param rebase: last iteration whose candidates prompts show; 0: all.
    :param is_recorded: whether the iteration has them; a person's are recorded by the check.
    """

    values: tuple[Values, ...] = ()
    duplicates: tuple[int, ...] = ()
    author: str = ""
    explanations: tuple[str, ...] = ()
    evidence_tokens: int = 0
    notes: tuple[str, ...] = ()
    rebase: int = 0
    is_recorded: bool = False


class ModelSearch(SearchSession):
    """A search in which a language model proposes parameters."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._variant = VARIANTS[self._settings.search]
        self._evidence = EvidenceReader(context, self._variant, self._profile)
        self._prompts = Prompts(
            context.spec,
            self._form,
            variant=self._variant,
            profile=self._profile,
            excerpt=self._evidence.excerpt,
        )

    # Proposals.

    def restore(self, number: int) -> Candidates | None:
        """Return the candidates whose evaluation an earlier epoch started."""

        def look() -> Json:
            iteration = self._context.store.iteration(number)
            begun = any(name.rpartition("/")[2] in (FIRST, SECOND) for name in iteration.assignments)
            first = [entry for entry in iteration.parameters.candidates if entry.origin != WARMUP]
            if not first or not (begun or first[0].returns):
                return None
            count = 2 if self._variant.second == "independent" else 1
            return {
                "values": [list(entry.values) for entry in first[:count]],
                "duplicates": [entry.duplicate_of for entry in first[:count]],
                "author": iteration.author,
                "notes": list(iteration.notes),
            }

        row = self._context.step(f"resumed:{number}", look)
        if row is None:
            return None
        return self._candidates(row, is_checked=True)

    def adopt(self, number: int, directions: Directions) -> Candidates:
        """Return a person's parameters."""
        self._warm_up(number)
        values = self._form.parse(directions.proposal, field="proposal_source")
        return self._candidates({"values": [values], "author": USER, "notes": directions.notes})

    def revise(self, number: int, directions: Directions) -> Candidates:
        """Return the proposer's parameters."""
        self._warm_up(number)
        data = self._context.step(f"propose:{number}", lambda: self._propose(number, directions))
        return self._candidates(data)

    def _candidates(self, data: Json, *, is_checked: bool = False) -> Candidates:
        values = tuple(tuple(entry) for entry in data["values"])
        return Candidates(
            text=as_text(values[0]),
            is_checked=is_checked,
            values=values,
            duplicates=tuple(data.get("duplicates", ())),
            author=data["author"],
            explanations=tuple(data.get("explanations", ())),
            evidence_tokens=data.get("evidence_tokens", 0),
            notes=tuple(data["notes"]),
            rebase=data.get("rebase", 0),
            is_recorded=data.get("recorded", False),
        )

    def _propose(self, number: int, directions: Directions) -> Json:
        """Ask the proposer and record its candidates. Only inside a step."""
        iterations = self._context.store.iterations()
        history = read(iterations, before=number)
        trials = history.prompt_trials(losers=self._profile.losers, until=directions.rebase)
        evidence = self._evidence.latest(history) if self._variant.trace_latest else ""
        work = self._prompts.proposer(brief(self._context), number, trials, notes=directions.notes, evidence=evidence)
        names = ("proposer-1", "proposer-2") if self._variant.second == "independent" else ("proposer",)
        answers = self._ask(number, [(name, {"parameter_proposer": work}) for name in names])
        data = {
            "values": [self._read_parameters(answer) for answer in answers],
            "author": answers[0].model,
            "explanations": [_line(answer) for answer in answers],
            "evidence_tokens": sum(answer.parameters.evidence_tokens for answer in answers),
            "notes": list(directions.notes),
            "rebase": directions.rebase,
        }
        duplicates = self._settle(number, self._candidates(data), iterations)
        return data | {"duplicates": duplicates, "recorded": True}

    def _ask(self, number: int, tasks: Sequence[tuple[str, dict[str, Any]]]) -> list[agent_pb.TaskResult]:
        """Send tasks to llm-agent at the same time."""
        messages = [
            agent_pb.Task(key=key_of(self._context, f"iterations/{number}/{name}"), **role) for name, role in tasks
        ]
        return converse_all(self._context, number, messages)

    def _read_parameters(self, answer: agent_pb.TaskResult) -> list[float]:
        """Return the parameters of a reply.

        :raises FailedPrecondition: for parameters that no policy of this form can have.
        """
        try:
            return list(self._form.check(answer.parameters.values, field="parameters"))
        except InvalidArgument as error:
            message = f"{answer.model} proposed parameters that cannot be evaluated: {error.message}"
            raise FailedPrecondition(message, reason="BAD_PARAMETERS") from error

    def edit(self, proposal: Proposal, text: str) -> Candidates:
        """Return a person's replacement of the first candidate."""
        assert isinstance(proposal, Candidates)
        values = self._form.parse(text, field="proposal_source")
        return replace(
            proposal,
            text=as_text(values),
            version=f"{proposal.version}-edit",
            values=(values, *proposal.values[1:]),
            author=USER,
            explanations=("", *proposal.explanations[1:]),
            is_recorded=False,
        )

    def _warm_up(self, number: int) -> None:
        """Evaluate the random candidates before the first iteration, one episode each."""
        count = self._settings.warmup
        if number > 1 or not count:
            return
        drawn = self._form.random(count, seed=self._context.spec.seed + _WARMUP_SEED)
        named = {str(index): values for index, values in enumerate(drawn, start=1)}

        def begin() -> None:
            self._require_budget(episodes=count)
            task = self._task(named, seeds=self._seeds(number, 0)[:1])
            assignments.start(self._context, number, WARMUP, task)

        def record(results: Results) -> None:
            iterations = self._context.store.iterations()
            if any(entry.origin == WARMUP for iteration in iterations for entry in iteration.parameters.candidates):
                return  # by an earlier epoch
            changes = v1.Iteration()
            for name, values in named.items():
                returns = results[name].returns
                changes.parameters.candidates.add(
                    values=values, origin=WARMUP, mean_return=mean(returns), returns=returns
                )
            report.count(self._context, evaluated=count, episodes=count, cache_hits=0, key=WARMUP)
            self._context.store.update_iteration(number, changes, ["parameters.candidates"])

        self._context.step(f"start:{number}:{WARMUP}", begin)
        self._finish(number, WARMUP, WARMUP, record)

    def _seeds(self, number: int, slot: int) -> list[int]:
        """Return the seeds of an evaluation.

        :param slot: 0 for the random candidates and the first candidate, 1 for the second one.
        """
        block = 0 if self._profile.paired else 2 * (number - 1) + slot
        return report.search_seeds(self._context.spec, self._settings.episodes, block=block)

    # The check.

    def check(self, number: int, proposal: Proposal) -> Candidates:
        """Record a person's candidates; those of the proposer are recorded with its reply."""
        assert isinstance(proposal, Candidates)
        if proposal.is_recorded:
            return proposal
        name = f"check:{number}:{proposal.version}"
        duplicates = self._context.step(name, lambda: self._settle(number, proposal, self._context.store.iterations()))
        return replace(proposal, duplicates=tuple(duplicates), is_recorded=True)

    def _settle(self, number: int, proposal: Candidates, iterations: Sequence[v1.Iteration]) -> list[int]:
        """Record the first candidates; return their earlier evaluations. Only inside a step."""
        duplicates = _duplicates(read(iterations, before=number), proposal.values, number)
        iteration = next((entry for entry in iterations if entry.number == number), v1.Iteration())
        changes = v1.Iteration(author=proposal.author)
        warmup = (entry for entry in iteration.parameters.candidates if entry.origin == WARMUP)
        changes.parameters.candidates.extend(warmup)
        changes.parameters.values.extend(proposal.values[0])
        changes.parameters.evidence_tokens = proposal.evidence_tokens
        for values, duplicate, explanation in zip_longest(proposal.values, duplicates, proposal.explanations):
            changes.parameters.candidates.add(
                values=values, origin=SEARCH, duplicate_of=duplicate, explanation=explanation or ""
            )
        parent = proposal.rebase or number - 1
        changes.parent = self._context.iteration_name(parent) if parent else ""
        changes.planned_change = proposal.explanations[0] if proposal.explanations else ""
        updated = self._context.store.update_iteration(
            number, changes, ["author", "parent", "planned_change", "parameters"]
        )
        self._write_parameters(number, updated)
        return duplicates

    # Evaluation.

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Play the candidates of an iteration, and keep one of them."""
        assert isinstance(proposal, Candidates)
        offset = self._settings.warmup if number == 1 else 0
        pairs = zip(proposal.values, proposal.duplicates, strict=True)
        new = {str(offset + 1 + index): values for index, (values, duplicate) in enumerate(pairs) if not duplicate}
        if new:
            self._context.step(f"start:{number}:{FIRST}", lambda: self._start(number, FIRST, new))
        if self._variant.second in ("critic", "proposal"):
            state = self._process(number, FIRST, f"second:{number}", new, partial(self._second, number, proposal))
            if state["started"]:
                state = self._process(number, SECOND, f"record:{number}", True, partial(self._keep, number))
        else:
            state = self._process(number, FIRST, f"record:{number}", new, partial(self._keep, number))
        outcome = Outcome.of(state["outcome"])
        self._outcomes[number] = outcome
        return EvaluationResult(outcome.passed, outcome.score)

    def _start(self, number: int, ident: str, candidates: Mapping[str, Values]) -> None:
        """Start to play candidates. Only inside a step."""
        self._require_budget(episodes=self._settings.episodes * len(candidates))
        labels = self._variant.rollout_labels if ident == FIRST and self._variant.second == "critic" else ()
        traced = (self._variant.trace,) if self._variant.trace else ()
        task = self._task(
            candidates, seeds=self._seeds(number, int(ident == SECOND)), labels=tuple(dict.fromkeys((*labels, *traced)))
        )
        assignments.start(self._context, number, ident, task)

    def _process(self, number: int, ident: str, step: str, started: object, then: Callable[[Results], Json]) -> Json:
        """Process the results of an assignment in the step of that name; no results if it was not started."""
        if started:
            return self._finish(number, ident, step, then)
        return self._context.step(step, lambda: then({}))

    def _second(self, number: int, proposal: Candidates, results: Results) -> Json:
        """Record the first candidate, ask for the second one and start to play it. Only inside a step.

        Without a second candidate to play, the iteration is recorded. One that an earlier epoch recorded is used.
        """
        iteration, history = self._context.store.together(lambda: self._fill_returns(number, results))
        played = [entry for entry in iteration.parameters.candidates if entry.origin != WARMUP]
        first, second = played[0], played[1] if len(played) > 1 else None
        if second is None:
            if self._settings.revision_rule == "skip" and self._limits(first.mean_return):
                first.rule = SKIPPED
                return self._record_outcome(number, lambda: iteration)
            self._require_budget(episodes=self._settings.episodes)
            played_now = next(iter(results.values()), None)
            second = self._ask_second(number, proposal, iteration, first, history, played_now)
        if second.duplicate_of or second.returns:
            return self._keep(number, {})
        position = len(iteration.parameters.candidates)
        self._start(number, SECOND, {str(position): tuple(second.values)})
        return {"started": True}

    def _limits(self, score: float) -> bool:
        settings = self._settings
        threshold = settings.revision_threshold if settings.HasField("revision_threshold") else None
        return settings.revision_rule != "none" and limits_revision(score, threshold)

    def _ask_second(
        self,
        number: int,
        proposal: Candidates,
        iteration: v1.Iteration,
        first: v1.ParameterCandidate,
        history: History,
        result: v1.CandidateResult | None,
    ) -> v1.ParameterCandidate:
        """Ask for the second candidate and record it. Only inside a step.

        :param history: of the iterations before.
        :param result: of the first candidate; None if it was not played.
        """
        trials = history.prompt_trials(losers=self._profile.losers, until=proposal.rebase)
        trial = Trial(tuple(first.values), first.mean_return, tuple(first.returns), number, 0, SEARCH, is_kept=False)
        intent = brief(self._context)
        if self._variant.second == "proposal":
            work = self._prompts.proposer(intent, number, trials, notes=proposal.notes, previous=trial)
            answer = self._ask(number, [("proposer-2", {"parameter_proposer": work})])[0]
        else:
            evidence = self._evidence.of_candidate(number, trial, history, result=result)
            critic = self._prompts.critic(
                intent, number, trials, proposal=trial, evidence=evidence, notes=proposal.notes
            )
            answer = self._ask(number, [("critic", {"critic": critic})])[0]
        second = self._second_candidate(number, first, answer, history)
        iteration.parameters.candidates.append(second)
        iteration.parameters.evidence_tokens += answer.parameters.evidence_tokens
        iteration.diagnosis = second.explanation
        paths = ["parameters.candidates", "parameters.evidence_tokens", "diagnosis"]
        self._context.store.update_iteration(number, iteration, paths)
        return second

    def _second_candidate(
        self, number: int, first: v1.ParameterCandidate, answer: agent_pb.TaskResult, history: History
    ) -> v1.ParameterCandidate:
        before, values, rule = tuple(first.values), tuple(self._read_parameters(answer)), ""
        if self._settings.revision_rule == "bound" and self._limits(first.mean_return):
            limited = bound_revision(before, values, step_size=self._settings.step_size, choices=self._form.choices)
            values, rule = limited, BOUNDED if limited != values else ""
        duplicate = number if identity(values) == identity(before) else _duplicates(history, [values], number)[0]
        return v1.ParameterCandidate(
            values=values,
            origin=CRITIC if self._variant.second == "critic" else SEARCH,
            duplicate_of=duplicate,
            explanation=_line(answer),
            rule=rule,
        )

    # The record.

    def _fill_returns(self, number: int, results: Results) -> tuple[v1.Iteration, History]:
        """Record the returns of candidates, played or from the cache, and count them.

        :return: the iteration, and the history before it.
        Returns that an earlier epoch recorded are not counted again. Only inside a step.
        """
        iterations = self._context.store.iterations()
        iteration = next(entry for entry in iterations if entry.number == number)
        history, proposal = read(iterations, before=number), iteration.parameters
        new = hits = episodes = 0
        for position, candidate in enumerate(proposal.candidates, start=1):
            if candidate.returns:
                continue
            result = results.get(str(position))
            if result is None and not candidate.duplicate_of:
                continue  # recorded by a step that was killed before it started to play the candidate
            if result is None:
                candidate.returns[:] = _cached_returns(history, iteration, candidate)
                hits += 1
            else:
                candidate.returns[:] = result.returns
                new, episodes = new + 1, episodes + len(result.returns)
            candidate.mean_return = mean(candidate.returns)
        if new or hits:
            key = f"{number}:{len(proposal.candidates)}"
            report.count(self._context, evaluated=new, episodes=episodes, cache_hits=hits, key=key)
            proposal.episodes += episodes
            proposal.chosen = self._best_number(proposal.candidates)
            best = proposal.candidates[proposal.chosen - 1]
            proposal.values[:] = best.values
            iteration.score = best.mean_return
            self._context.store.update_iteration(number, iteration, ["parameters", "score"])
        return iteration, history

    def _best_number(self, candidates: Sequence[v1.ParameterCandidate]) -> int:
        """Return the number of the candidate that the iteration keeps; of equals the later one, which is the revision."""
        numbers = [
            position for position, entry in enumerate(candidates, start=1) if entry.returns and entry.origin != WARMUP
        ]
        if self._variant.commits_second:
            return numbers[-1]
        return max(numbers, key=lambda position: (candidates[position - 1].mean_return, position))

    def _keep(self, number: int, results: Results) -> Json:
        """Record the last candidates of an iteration and what it came to. Only inside a step."""
        return self._record_outcome(number, lambda: self._fill_returns(number, results)[0])

    def _record_outcome(self, number: int, filled: Callable[[], v1.Iteration]) -> Json:
        def record() -> tuple[v1.Iteration, Json]:
            iteration = self._context.store.update_iteration(number, filled(), ["parameters", "score"])
            self._context.store.set_best(number, v1.Session(), score=iteration.score)
            values = tuple(iteration.parameters.values)
            return iteration, self._outcome(number, values, chosen=iteration.parameters.chosen, score=iteration.score)

        iteration, outcome = self._context.store.together(record)
        self._write_files(number, iteration)
        return {"started": False, "outcome": outcome}


def _duplicates(history: History, values: Sequence[Values], number: int) -> list[int]:
    """Return for each candidate the iteration that evaluated it before, or the same one for equal candidates; 0: none."""
    numbers: list[int] = []
    identities: set[bytes] = set()
    for entry in values:
        earlier = history.find(entry)
        numbers.append(earlier.iteration if earlier else number if identity(entry) in identities else 0)
        identities.add(identity(entry))
    return numbers


def _cached_returns(history: History, iteration: v1.Iteration, candidate: v1.ParameterCandidate) -> list[float]:
    """Return the recorded returns of an earlier evaluation, or of an equal candidate of the same iteration."""
    earlier = history.find(tuple(candidate.values))
    if earlier is not None:
        return list(earlier.returns)
    key = identity(candidate.values)
    for entry in iteration.parameters.candidates:
        if entry.origin != WARMUP and entry.returns and identity(entry.values) == key:
            return list(entry.returns)
    raise FailedPrecondition("the evaluation of a repeated candidate is missing", reason="EVALUATION_MISSING")


def _line(answer: agent_pb.TaskResult) -> str:
    return answer.parameters.explanation.strip()[:_MAX_TEXT]
