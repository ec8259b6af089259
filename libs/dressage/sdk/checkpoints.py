"""The checkpoints of a training in the view of a session: one line for each, with all members' scores and returns.

The members of a training reach a checkpoint one after another, and their judgments follow in any order. `Checkpoints` collects
both, as a pure function of the events, and has a line once every member has what a checkpoint gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from dressage.api.v1 import event_pb2
from dressage.sdk.texts import mean

_SHOWN = 6
"""Members that a line lists by value; of more, it has the range."""


@dataclass(frozen=True)
class Checkpoint:
    """Results of a checkpoint, by member."""

    returns: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mean return under the environment's reward."""
    speeds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mean speed in m/s."""
    scores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    passed: frozenset[str] = frozenset()
    title: str = "checkpoint"
    """What was judged."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training.

    :param judged: whether a judge scores them.
    """

    judged: bool = True
    evaluated: int = 0
    """Evaluations that have finished, over all members."""
    pending: Mapping[int, Checkpoint] = field(default_factory=lambda: MappingProxyType({}))
    """Checkpoints without a line so far, by their environment step."""
    last_step: int = 0

    def with_evaluation(self, member: str, evaluation: event_pb2.EvaluationFinished) -> Checkpoints:
        """Return the state after an evaluation."""
        result, step = evaluation.evaluation, evaluation.evaluation.env_step
        checkpoint = self.pending.get(step, Checkpoint())
        returns, speeds = mean(result.returns), mean(result.speeds)
        if returns is not None:
            checkpoint = replace(checkpoint, returns=_with(checkpoint.returns, member, returns))
        if speeds is not None:
            checkpoint = replace(checkpoint, speeds=_with(checkpoint.speeds, member, speeds))
        return replace(
            self,
            evaluated=self.evaluated + 1,
            pending=_with(self.pending, step, checkpoint),
            last_step=max(self.last_step, step),
        )

    def with_judgment(self, member: str, event: event_pb2.Judged, *, fresh: bool = False) -> Checkpoints:
        """Return the state after a judgment of a member.

        One without a step is of the policies that the training ended with.

        :param fresh: whether it is of rollouts on fresh seeds.
        """
        step = event.env_step or self.last_step
        checkpoint = self.pending.get(step, Checkpoint())
        checkpoint = replace(checkpoint, scores=_with(checkpoint.scores, member, event.judgment.score))
        if event.judgment.passed:
            checkpoint = replace(checkpoint, passed=checkpoint.passed | {member})
        if not event.env_step:
            checkpoint = replace(checkpoint, title="on fresh seeds, policies" if fresh else "policies")
        return replace(self, pending=_with(self.pending, step, checkpoint))

    def take(self, members: int) -> tuple[Checkpoints, str]:
        """Return the state without the first complete checkpoint, and its line; empty if none is complete.

        :param members: members that reach a checkpoint.
        """
        for step in sorted(self.pending):
            checkpoint = self.pending[step]
            complete = checkpoint.scores if self.judged else checkpoint.returns
            if members and len(complete) >= members:
                rest = {other: value for other, value in self.pending.items() if other > step}
                return replace(self, pending=MappingProxyType(rest)), text(step, checkpoint)
        return self, ""


def text(step: int, checkpoint: Checkpoint) -> str:
    """Return the line of a checkpoint."""
    parts = []
    if checkpoint.scores:
        passed = f", {len(checkpoint.passed)} of {len(checkpoint.scores)} passed"
        parts.append(f"score {_values(checkpoint.scores, '.2f')}{passed}")
    if checkpoint.returns:
        parts.append(f"stock return {_values(checkpoint.returns, 'z.0f')}")
    if checkpoint.speeds:
        parts.append(f"{_values(checkpoint.speeds, 'z.2f')} m/s")
    return f"{checkpoint.title} at {step:,} steps: {'; '.join(parts)}"


def _values(values: Mapping[str, float], form: str) -> str:
    ordered = [values[name] for name in sorted(values)]
    if len(ordered) > _SHOWN:
        return f"{mean(ordered):{form}} on average, {min(ordered):{form}} to {max(ordered):{form}}"
    return " ".join(f"{value:{form}}" for value in ordered)


def _with(values: Mapping[str, float] | Mapping[int, Checkpoint], key: object, value: object) -> MappingProxyType:  # type: ignore[type-arg]
    return MappingProxyType({**values, key: value})
