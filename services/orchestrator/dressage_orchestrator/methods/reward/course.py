"""How long a training lasts: decided at its judged checkpoints. Pure.

A training may continue to its expected steps, and ends before them once every seed passes with a margin at two successive
checkpoints. From then on each checkpoint decides: it ends where the mean over the seeds passes with the same margin, where it
passes for the second time in succession, or where neither scores nor returns rose at the last ``patience`` checkpoints;
otherwise it may continue to the next checkpoint. Where it does not pass yet and still rises, it may continue to the checkpoint
after that as well, so that the learner need not wait for judgments.

The decision looks at the checkpoints from the first on, so that it does not depend on when it is made: a late one is that of a
prompt one. It needs the judgments of all seeds up to there.

Whether values rise is the seasonal Kendall test (Hirsch, Slack & Smith, 1982) with a seed in place of a season: for each seed
the number of pairs of checkpoints of which the later is higher, minus those of which it is lower, summed over the seeds. Where
the checkpoints of a seed are exchangeable, all orders are equally probable, so the distribution of the sum is exact for any
number of seeds and checkpoints; ties make the test conservative. It needs no unit, no variance and no shape of the curve. A
rise that is no chance may still be too small to wait for: it must be a tenth of what the training gained since its start.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.statistics import mean

from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.checkpoint_judging import Decision, EarlyEnd

PATIENCE = 2
"""Successive checkpoints without a rise after which a training ends, where the spec sets none."""
BUDGET_SHARE = 0.8
"""Share of the time left that continuing to the next checkpoints may take."""


@dataclass(frozen=True)
class Course:
    """The rule of a training.

    :param threshold: score from which a session passes.
    :param steps: expected environment steps of each member.
    :param evaluations: number of evaluations in them, evenly spaced.
    :param most: largest number of steps of each member, at least ``steps``.
    :param patience: successive checkpoints without a rise after which it ends.
    """

    threshold: float
    steps: int
    evaluations: int
    most: int
    patience: int = PATIENCE

    def mark(self, number: int) -> int:
        """Return the environment steps of a checkpoint, numbered from 1."""
        return min(self.most, self.steps * number // self.evaluations)

    def number(self, env_step: int) -> int:
        """Return the number of the last mark that a step has reached."""
        number = env_step * self.evaluations // self.steps
        return number + 1 if self.steps * (number + 1) // self.evaluations <= env_step else number

    def decide(self, members: Sequence[v1.Member]) -> Decision:
        return decide(members, course=self)

    def affordable(self, members: Sequence[v1.Member], extension: v1.Extension, *, pace: float, seconds: float) -> bool:
        """Whether the time left suffices. The last evaluation and the judgment take a part of what is left."""
        done = max((member.env_steps for member in members), default=0)
        return pace * max(0, extension.env_steps - done) <= BUDGET_SHARE * seconds

    def end_at_last_checkpoint(self, members: Sequence[v1.Member], reason: v1.StopReason.ValueType) -> EarlyEnd | None:
        return last_common_end(members, course=self, reason=reason)


@dataclass(frozen=True)
class Checkpoint:
    """A judged checkpoint of a member.

    :param gain: mean return under the reward that is trained on, or else under the environment's.
    """

    env_step: int
    score: float
    gain: float


MemberCheckpoints = dict[str, dict[int, Checkpoint]]
"""Judged checkpoints by the id of the member and the number of the mark."""


def decide(members: Sequence[v1.Member], *, course: Course) -> Decision:
    """Return how the training ends, or until when it may continue; neither if it has its expected steps and no more.

    :param members: the training's members with the judgments so far; those that failed are left out beyond the expected steps.
    """
    early = early_end(members, threshold=course.threshold, marks=course.evaluations - 1, number=course.number)
    if early is not None or course.most <= course.steps:
        return Decision(end=early)
    by_member = {
        member.name.rpartition("/")[2]: _checkpoints(member, course)
        for member in members
        if not member.HasField("failure")
    }
    number, granted, extension = 0, course.evaluations, None
    while by_member and all(number + 1 in checkpoints for checkpoints in by_member.values()):
        number += 1
        if number < course.evaluations - 1:
            continue
        rise, passes = _rise(by_member, number), _score(by_member, number) >= course.threshold
        if number >= course.evaluations and (
            _surely(by_member, number, course) or _is_level(by_member, number, course)
        ):
            return Decision(end=_end(by_member, number, rise, course, passes=passes))
        # A checkpoint that passes before the expected steps is not gone beyond until the next one is known.
        ahead = number + (2 if not passes and (rise.score_rises or rise.return_rises) else 1)
        if ahead > granted:
            granted = ahead
            score = _score(by_member, number)
            extension = v1.Extension(env_steps=course.mark(ahead), score=score, rise=rise, passes=passes)
            extension.decided_at = max(steps_at(by_member, number).values())
    return Decision(extension=extension)


def _surely(checkpoints: MemberCheckpoints, number: int, course: Course) -> bool:
    """Whether it passes with a margin, or twice in succession: a checkpoint's few episodes differ from those of the end."""
    lowest = min(_score(checkpoints, earlier) for earlier in range(max(1, number - 1), number + 1))
    return _score(checkpoints, number) >= required_score(course.threshold) or lowest >= course.threshold


def _is_level(checkpoints: MemberCheckpoints, number: int, course: Course) -> bool:
    """Whether nothing rose at the last checkpoints."""
    recent = [_rise(checkpoints, earlier) for earlier in range(max(1, number - course.patience + 1), number + 1)]
    return not any(rise.score_rises or rise.return_rises for rise in recent)


def _end(checkpoints: MemberCheckpoints, number: int, rise: v1.Rise, course: Course, *, passes: bool) -> EarlyEnd:
    decision = v1.EarlyStop(score=_score(checkpoints, number), required_score=course.threshold)
    decision.reason = v1.STOP_REASON_PASSES if passes else v1.STOP_REASON_LEVEL
    if not passes:
        decision.rise.CopyFrom(rise)
    return EarlyEnd(steps_at(checkpoints, number), decision)


def last_common_end(
    members: Sequence[v1.Member], *, course: Course, reason: v1.StopReason.ValueType
) -> EarlyEnd | None:
    """Return the end at the last checkpoint that all members have, judged or not; None before the first.

    For a training that cannot continue: the budget ends, or its checkpoints cannot be judged.
    """
    alive = [member for member in members if not member.HasField("failure")]
    evaluated = [{course.number(e.env_step): e for e in member.evaluations} for member in alive]
    common = set.intersection(*map(set, evaluated)) if evaluated else set()
    if not common:
        return None
    last = max(common)
    scores = [aggregate.checkpoint_score(entries[last]) or 0.0 for entries in evaluated]
    decision = v1.EarlyStop(score=mean(scores), required_score=course.threshold, reason=reason)
    steps = {m.name.rpartition("/")[2]: e[last].env_step for m, e in zip(alive, evaluated, strict=True)}
    return EarlyEnd(steps, decision)


def steps_at(members: MemberCheckpoints, number: int) -> dict[str, int]:
    """Return each member's environment steps at a checkpoint, by its id."""
    return {ident: checkpoints[number].env_step for ident, checkpoints in members.items()}


def _score(members: MemberCheckpoints, number: int) -> float:
    return mean([checkpoints[number].score for checkpoints in members.values()])


def _rise(members: MemberCheckpoints, number: int) -> v1.Rise:
    """Return how scores and returns developed until a checkpoint."""
    span = range(1, number + 1)
    scores, score_chance = rises([[seed[n].score for n in span] for seed in members.values()])
    gains, gain_chance = rises([[seed[n].gain for n in span] for seed in members.values()])
    return v1.Rise(
        checkpoints=min(number, WINDOW),
        score_chance=score_chance,
        return_chance=gain_chance,
        score_rises=scores,
        return_rises=gains,
    )


def _checkpoints(member: v1.Member, course: Course) -> dict[int, Checkpoint]:
    """Return a member's judged checkpoints by number."""
    checkpoints = {}
    for evaluation in member.evaluations:
        score = aggregate.checkpoint_score(evaluation)
        if score is not None and evaluation.env_step < course.most:
            gain = mean(evaluation.proposed_returns or evaluation.returns)
            checkpoints[course.number(evaluation.env_step)] = Checkpoint(evaluation.env_step, score, gain)
    return checkpoints


# One checkpoint is not enough: with 10 marks one seed fell from 0.99 to 0.76 and rose again (decision 0048).
MARGIN = 0.1
"""Required above the pass threshold, at most half of the distance from the threshold to 1."""


def required_score(threshold: float) -> float:
    """Return the score that each checkpoint of each seed must reach."""
    return threshold + min(MARGIN, (1.0 - threshold) / 2)


def early_end(
    members: Sequence[v1.Member], *, threshold: float, marks: int, number: Callable[[int], int]
) -> EarlyEnd | None:
    """Return how the training ends; None if it continues.

    :param members: the training's members with the judgments so far.
    :param marks: number of evaluations before the last one.
    :param number: returns the number of the last mark that a step has reached, from 1.
    """
    required, scores = required_score(threshold), [_marked_scores(member, marks, number) for member in members]
    if not scores or any(member.HasField("failure") for member in members):
        return None
    for mark in range(1, marks):
        at = [(seed.get(mark), seed.get(mark + 1)) for seed in scores]
        # The first pair decides: a later one must not win because its judgments came earlier (decision 0048).
        if any(first is None or second is None for first, second in at):
            return None
        pairs = [(first, second) for first, second in at if first is not None and second is not None]
        lowest = min(min(first[1], second[1]) for first, second in pairs)
        if lowest >= required:
            steps = {m.name.rpartition("/")[2]: second[0] for m, (_, second) in zip(members, pairs, strict=True)}
            decision = v1.EarlyStop(score=lowest, required_score=required, reason=v1.STOP_REASON_PASSES_EARLY)
            return EarlyEnd(steps, decision)
    return None


def _marked_scores(member: v1.Member, marks: int, number: Callable[[int], int]) -> dict[int, tuple[int, float]]:
    """Return steps and score of a member's judged checkpoints, by the number of their mark, from 1."""
    scores = {}
    for evaluation in member.evaluations:
        score = aggregate.checkpoint_score(evaluation)
        if score is not None and number(evaluation.env_step) <= marks:
            scores[number(evaluation.env_step)] = (evaluation.env_step, score)
    return scores


WINDOW = 5
"""Number of checkpoints, at most."""
CHANCE = 0.05
"""Largest probability of such a rise where there is none."""
# Returns rise for ever by ever less (decision 0050).
SHARE = 0.1
"""Smallest rise over the window, as a share of the range of the seeds' mean since the start."""

Series = Sequence[Sequence[float]]
"""For each seed its values at the checkpoints so far, in order, equally many."""


def rises(series: Series) -> tuple[bool, float]:
    """Return whether values rise over the last checkpoints, and the probability of this if they were level."""
    window = [values[-WINDOW:] for values in series]
    chance = chance_of(window)
    means = [statistics.fmean(values) for values in zip(*series, strict=True)]
    span = max(means) - min(means) if means else 0.0
    return chance <= CHANCE and _median_rise(window) >= SHARE * span > 0, chance


def chance_of(window: Series) -> float:
    """Return the probability that level values rise as clearly as these, or more clearly."""
    lengths = tuple(sorted(len(values) for values in window))
    statistic = sum(_concordance(values) for values in window)
    return sum(share for total, share in _distribution(lengths).items() if total >= statistic)


def _concordance(values: Sequence[float]) -> int:
    """Kendall's S: pairs in rising order minus pairs in falling order."""
    return sum(
        (later > earlier) - (later < earlier) for place, earlier in enumerate(values) for later in values[place + 1 :]
    )


@functools.cache
def _distribution(lengths: tuple[int, ...]) -> dict[int, float]:
    """Distribution of the sum of S over independent random orders of these lengths, without ties."""
    whole = {0: 1.0}
    for length in lengths:
        # Inserting the n-th value into a random order moves it past 0 to n - 1 others with equal probability.
        for n in range(2, length + 1):
            moved: dict[int, float] = {}
            for total, share in whole.items():
                for passed in range(n):
                    key = total + (n - 1) - 2 * passed
                    moved[key] = moved.get(key, 0.0) + share / n
            whole = moved
    return whole


def _median_rise(window: Series) -> float:
    """Mean over the seeds of the rise over the window, by the median slope of pairs (Theil and Sen)."""
    rises_ = []
    for values in window:
        slopes = [(values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(i + 1, len(values))]
        rises_.append(statistics.median(slopes) * (len(values) - 1) if slopes else 0.0)
    return statistics.fmean(rises_) if rises_ else 0.0
