"""TensorBoard files of evaluations and judgments, next to the trainer's own: ``members/{m}/tb/evaluation``.

The trainer has no scores, so the orchestrator writes this file whenever members of a training were judged. It has all points
so far and replaces the one before, so that a repeated step changes nothing. The tags are those of Stable-Baselines3's
evaluation callback where it logs the same.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from dressage.statistics import mean
from dressage.training.eventfile import FILE_NAME, EventFile

from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.context import SessionContext


def write(context: SessionContext, members: Sequence[v1.Member]) -> None:
    """Write the files of members. An error is logged: a picture of a training must not fail its session. In a step."""
    time = context.store.now().timestamp()
    for member in members:
        if not member.evaluations:
            continue
        try:
            context.engine.store.put(f"{member.name}/tb/evaluation/{FILE_NAME}", encode(member, wall_time=time))
        except DressageError as error:
            context.log.warning("the TensorBoard file of evaluations is not written", error=error.message)
            return


def encode(member: v1.Member, *, wall_time: float) -> bytes:
    """Return the event file of a member.

    :param wall_time: seconds since the epoch, for all points.
    """
    buffer = io.BytesIO()
    board = EventFile(buffer, wall_time=wall_time)
    for evaluation in member.evaluations:
        board.add(scalars(evaluation), step=evaluation.env_step, wall_time=wall_time)
    return buffer.getvalue()


def scalars(evaluation: v1.Evaluation) -> dict[str, float]:
    """Return the scalars of an evaluation by their tags."""
    values: dict[str, Sequence[float]] = {
        "eval/mean_reward": evaluation.returns,
        "eval/mean_ep_length": evaluation.lengths,
        "eval/mean_proposed_reward": evaluation.proposed_returns,
        "eval/mean_speed": evaluation.speeds,
    }
    tagged = {tag: mean(numbers) for tag, numbers in values.items() if numbers}
    score = aggregate.checkpoint_score(evaluation)
    return tagged if score is None else {**tagged, "eval/judge_score": score}
