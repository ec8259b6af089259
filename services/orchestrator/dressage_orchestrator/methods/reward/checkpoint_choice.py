"""The checkpoint of each member that is judged, confirmed and delivered: the last one, or a better earlier one (decision 0086).

Checkpoints are judged on few episodes, so the best of many is in part the luckiest. It is compared with the last one only if it
scored higher by a margin, on fresh seeds that no other part of the session uses, the same for both. It replaces the last one if
the interval of the mean difference, seed by seed, is above 0. Without a judge the returns decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from dressage.statistics import bootstrap_interval, mean

from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.context import HistoryMismatch, SessionContext
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.methods.reward.code import Code
from dressage_orchestrator.methods.reward.judgment import judge_by_code, write_judge
from dressage_orchestrator.methods.reward.training import play_checkpoints

MARGIN = 0.1
"""By which an earlier checkpoint's score must exceed the last one's to be compared; of returns, the share of their range."""


def choose_checkpoints(
    context: SessionContext, number: int, training: str, judge: Code | None, *, reward_source: str
) -> Code | None:
    """Choose each member's checkpoint in a training whose last checkpoints were judged; None as the judge: by returns.

    :return: the judge, which may have been repaired.
    """
    part = training.rpartition("/")[2]
    judged = judge is not None
    better = context.step(
        f"checkpoints:{number}:{part}", lambda: better_checkpoints(context.store.members(training), judged=judged)
    )
    if not better:
        return judge
    try:
        earlier, last = play_checkpoints(
            context, number, training, better, reward_source=reward_source, every_rollout=judged
        )
    except HistoryMismatch:
        raise
    except (DressageError, Exhausted) as error:
        _warn_not_compared(context, number, training, error.message)
        return judge
    try:
        used = judge and _judge_both(context, number, training, (earlier, last), judge)
    except HistoryMismatch:
        raise
    except (DressageError, Exhausted) as error:
        _warn_not_compared(context, number, training, error.message, judge=judge)
        # No further repair: one that preceded the failure has the name that the next one would get.
        return judge and replace(judge, repairs=max(judge.repairs, context.engine.settings.max_repairs))
    context.step(f"select:{number}:{part}", lambda: _select(context, number, training, (earlier, last), judged=judged))
    return used


def _warn_not_compared(
    context: SessionContext, number: int, training: str, cause: str, *, judge: Code | None = None
) -> None:
    """Warn that the last checkpoints stay: they are a result without the comparison. A judge is written as the iteration's."""
    message = f"earlier checkpoints are not compared with the last ones: {cause}"[:1000]

    def warn() -> None:
        if judge is not None:
            write_judge(context, number, judge)
        context.store.warn("CHECKPOINTS_NOT_COMPARED", message, iteration=number, key=f"not-compared/{training}")

    context.step(f"warn:checkpoints:{number}:{training.rpartition('/')[2]}", warn)


def _judge_both(context: SessionContext, number: int, training: str, played: tuple[str, str], judge: Code) -> Code:
    """Have one judge score both checkpoints; return it."""
    earlier, last = played
    first = judge_by_code(context, number, earlier, judge)
    used = judge_by_code(context, number, last, first)
    if used.source != first.source:
        used = judge_by_code(context, number, earlier, used)
    if used.source != judge.source:
        used = judge_by_code(context, number, training, used)
    return used


def better_checkpoints(members: Sequence[v1.Member], *, judged: bool = True) -> dict[str, int]:
    """Return the steps of members' best checkpoints by id, where they exceed the last ones by the margin; of equals the latest.

    :param judged: whether scores decide; else returns, with the margin as a share of their range.
    """
    better = {}
    for member in members:
        values = [(_value(entry, judged=judged), entry.env_step) for entry in member.evaluations]
        checkpoints = [(value, step) for value, step in values if value is not None]
        if member.HasField("failure") or not member.policy or not checkpoints or values[-1][0] is None:
            continue
        best, step = max(checkpoints)
        margin = MARGIN * (1.0 if judged else best - min(checkpoints)[0])
        if step != values[-1][1] and best - checkpoints[-1][0] > margin:
            better[member.name.rpartition("/")[2]] = step
    return better


def _value(evaluation: v1.Evaluation, *, judged: bool) -> float | None:
    if judged:
        return aggregate.checkpoint_score(evaluation)
    returns = evaluation.proposed_returns or evaluation.returns
    return mean(returns) if returns else None


def _select(
    context: SessionContext, number: int, training: str, played: tuple[str, str], *, judged: bool
) -> dict[str, bool]:
    """Record each comparison, and deliver the earlier checkpoint where it is better; return the outcomes by member."""
    lasts = {member.name.rpartition("/")[2]: member for member in context.store.members(played[1])}
    outcomes = {}
    for member in context.store.members(played[0]):
        ident = member.name.rpartition("/")[2]
        if ident not in lasts:
            continue
        evaluation = aggregate.deciding(member)
        comparison = compare(evaluation, aggregate.deciding(lasts[ident]), judged=judged)
        comparison.selected &= bool(member.policy)
        context.store.choose_checkpoint(training, ident, evaluation, comparison, policy=member.policy)
        outcomes[ident] = comparison.selected
        key = f"compared/{training}/{ident}"
        context.store.warn("CHECKPOINTS_COMPARED", _text(ident, comparison, judged=judged), iteration=number, key=key)
    return outcomes


def compare(earlier: v1.Evaluation, last: v1.Evaluation, *, judged: bool) -> v1.CheckpointComparison:
    """Compare two checkpoints that played the same seeds. Pure."""
    values, others = (_by_episode(entry, judged=judged) for entry in (earlier, last))
    both = sorted(values.keys() & others.keys())
    low, high = bootstrap_interval([values[episode] - others[episode] for episode in both])
    return v1.CheckpointComparison(
        env_step=earlier.env_step,
        last_env_step=last.env_step,
        value=mean([values[episode] for episode in both]),
        last_value=mean([others[episode] for episode in both]),
        episodes=len(both),
        interval_low=low,
        interval_high=high,
        selected=low > 0,
    )


def _by_episode(evaluation: v1.Evaluation, *, judged: bool) -> dict[int, float]:
    """Return scores by seed, or returns by place; both checkpoints have the same seeds."""
    if not judged:
        return dict(enumerate(evaluation.proposed_returns or evaluation.returns))
    return {entry.seed: entry.judgment.score for entry in evaluation.rollouts if aggregate.is_judged(entry)}


def _text(ident: str, comparison: v1.CheckpointComparison, *, judged: bool) -> str:
    unit = "scores" if judged else "returns"
    outcome = "is delivered instead of" if comparison.selected else "does not replace"
    return (
        f"{ident}: the checkpoint at {comparison.env_step:,} steps {outcome} the last one at {comparison.last_env_step:,}: "
        f"it {unit} {comparison.value:.3g} against {comparison.last_value:.3g} on {comparison.episodes} fresh episodes, "
        f"difference {comparison.interval_low:+.2g} to {comparison.interval_high:+.2g}"
    )
