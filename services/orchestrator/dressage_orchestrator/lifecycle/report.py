"""The score of a policy on report seeds, which no search uses, played on the reference environment.

Search methods select among candidates, so that the score on their search seeds is too high. The report is the score of the
session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.statistics import bootstrap_interval, mean

from dressage_orchestrator import metrics
from dressage_orchestrator.lifecycle import assignments
from dressage_orchestrator.lifecycle.context import SessionContext

# Disjoint ranges of seeds: seeds of training and search are never used for evaluation or confirmation.
TRAINING_SEED_LIMIT = 1_000_000
"""Upper bound of seeds for training and search."""
EVALUATION_SEED = 1_000_000
"""First seed of evaluations."""
SELECTION_SEED = 1_500_000
"""First seed on which two checkpoints of a training are compared; its evaluations use those of a thousand episodes at most."""
CONFIRMATION_SEED = 2_000_000
"""First seed of confirmations and reported scores."""

_CANDIDATE = "best"
_BLOCKS = 499
"""Blocks of seeds of a session, before those of the next session's seed."""


def target_of(spec: v1.SessionSpec, target: float | None, *, card_target: float | None) -> float:
    """Return the mean return required to succeed.

    :param target: the target in the settings of the method; None if there is none.
    :param card_target: the target of the environment card; None if it has none.
    :raises InvalidArgument: when neither has one.
    """
    chosen = target if target is not None else card_target
    if chosen is None:
        field = f"spec.{spec.WhichOneof('method_spec')}.target"
        environment = spec.environment.removeprefix("environments/")
        expected = f"a mean return from which the search succeeds, because the card of {environment} has no target"
        raise InvalidArgument(field=field, problem="missing", expected=expected)
    return chosen


def search_seeds(spec: v1.SessionSpec, episodes: int, *, block: int = 0) -> list[int]:
    """Return consecutive seeds for the episodes of candidates, from 1,000,000 on, below those of the report.

    Those of other blocks, and of a session with another seed, are others: the runs of an experiment share no episodes. After a
    million seeds the range begins again.

    :param block: number of the block, for searches that change their seeds from round to round.
    """
    number = spec.seed * _BLOCKS + block
    first = EVALUATION_SEED + number * episodes % (CONFIRMATION_SEED - EVALUATION_SEED - episodes)
    return list(range(first, first + episodes))


def report_seeds(episodes: int) -> list[int]:
    """Return the seeds of the report; no search uses them."""
    return list(range(CONFIRMATION_SEED, CONFIRMATION_SEED + episodes))


def play(
    context: SessionContext,
    number: int,
    candidate: work.Candidate,
    *,
    ident: str,
    policy: work.PolicySpec | None = None,
    limits: work.CodeLimits | None = None,
    episodes: int,
    states: Sequence[int] = (),
    profile: str = "",
    confirmations: int,
    provenance: Mapping[str, str],
) -> tuple[v1.Report, v1.CandidateResult]:
    """Play an iteration's candidate on the report seeds, store its bundle and record the report.

    The wall-clock budget does not limit it: a session whose budget is exhausted still gets its score.

    :param ident: id of the assignment, unique in the iteration; a report that exists is used.
    :param policy: form of the policy, if the candidate is parameters.
    :param states: initial states of a program, which are its seeds; none: the report seeds of all other candidates.
    :param profile: rules of the task, if the candidate is a program.
    :param confirmations: candidates of the session that were played on report seeds, this one included.
    :raises FailedPrecondition: when the candidate cannot be played.
    """
    seeds = list(states) or report_seeds(episodes)
    labels = ["worst", "median", "best"] if states else ["median"]
    task = work.EvaluateAssignment(environment=context.environment, seeds=seeds, kept=labels, profile=profile)
    task.options.CopyFrom(context.spec.environment_options)
    if policy is not None:
        task.policy.CopyFrom(policy)
    if limits is not None:
        task.code_limits.CopyFrom(limits)
    task.bundles = True
    task.provenance.update(provenance)
    task.candidates.add().CopyFrom(candidate)
    task.candidates[0].id = _CANDIDATE
    name = assignments.assign(context, number, ident, work.Assignment(evaluate=task))
    row = assignments.wait(context, name, within_wall_time=False)
    result = row.assignment.candidates[0] if row.assignment.candidates else v1.CandidateResult()
    failure = result.failure if result.HasField("failure") else row.assignment.failure
    if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED or result.HasField("failure"):
        message = f"the best policy cannot be played on report seeds: {failure.message}"
        raise FailedPrecondition(message, reason=failure.reason or "REPORT_FAILED")
    report = _report(result, first_seed=seeds[0], confirmations=confirmations)
    context.step(f"report:{number}:{ident}", lambda: context.store.set_report(number, report))
    return report, result


def count(
    context: SessionContext, *, evaluated: int, episodes: int, cache_hits: int, key: str, across_epochs: bool = False
) -> None:
    """Count evaluated candidates once, in the session and in the metrics. Only inside a step.

    :param across_epochs: whether the key counts once in the session, not once in each epoch.
    """
    numbers = {"candidates": evaluated, "episodes": episodes, "cache_hits": cache_hits}
    if not context.store.count_candidates(**numbers, key=key, across_epochs=across_epochs):
        return
    method = context.spec.WhichOneof("method_spec") or ""
    metrics.CANDIDATES.labels(method, "evaluated").inc(evaluated)
    metrics.CANDIDATES.labels(method, "cached").inc(cache_hits)
    metrics.EPISODES.labels(method, context.environment).inc(episodes)


def _report(result: v1.CandidateResult, *, first_seed: int, confirmations: int) -> v1.Report:
    low, high = bootstrap_interval(result.returns)
    return v1.Report(
        mean=mean(result.returns),
        interval_low=low,
        interval_high=high,
        returns=result.returns,
        lengths=result.lengths,
        successes=result.successes,
        first_seed=first_seed,
        confirmations=confirmations,
    )
