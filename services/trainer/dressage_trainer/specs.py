"""From an assignment's protobuf to the plain values that sandboxed processes are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from google.protobuf.message import Message

from dressage_trainer.messages import MemberTask, TrainSpec


def options_of(options: session_pb2.EnvironmentOptions) -> dict[str, Any]:
    """The options that are set, as `EnvOptions` names them."""
    return _set_fields(options)


def hyperparameters_of(hyperparameters: session_pb2.Hyperparameters) -> dict[str, Any]:
    """The hyperparameters that are set, as `training.Hyperparameters` names them."""
    values = _set_fields(hyperparameters)
    if "hidden_sizes" in values:
        values["hidden_sizes"] = list(values["hidden_sizes"])
    return values


def _set_fields(message: Message) -> dict[str, Any]:
    return {descriptor.name: value for descriptor, value in message.ListFields()}


def train_spec(
    task: pb.TrainAssignment, *, cores: int = 1, resume: Sequence[str] = (), memory_bytes: int = 0
) -> TrainSpec:
    """Return the learner's task.

    :param cores: threads that it may use.
    :param resume: checkpoints to resume from, relative to the learner's folder, the newest first.
    :param memory_bytes: the learner's bound.
    """
    members = tuple(
        MemberTask(member=member.id, hyperparameters=hyperparameters_of(member.hyperparameters), seed=member.seed)
        for member in task.members
    )
    return TrainSpec(
        environment=task.environment,
        options=options_of(task.options),
        reward_source=task.reward_source,
        members=members,
        steps_per_member=task.steps_per_member,
        evaluations=max(1, task.evaluations),
        checkpoint_seconds=task.checkpoint_seconds,
        threads=cores,
        backend=task.backend or "jax",
        algorithm=task.algorithm,
        provenance=dict(task.provenance),
        resume=resume[0] if resume else None,
        resume_earlier=tuple(resume[1:]),
        memory_bytes=memory_bytes,
    )
