"""Trainings on a pool of devices: what can run there, the defaults, and rewards that cannot be compiled for it."""

from __future__ import annotations

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.envs.device import known_difference
from dressage.envs.tasks import is_simulated
from dressage.limits import REWARD_NOT_TRACEABLE
from dressage.training.preset import device_preset, load_preset

from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.methods.reward.code import findings_line
from dressage_orchestrator.methods.reward.spec import continues

_BATCH = ("num_envs", "num_steps", "minibatch_size", "epochs")
"""Defaults of the device that depend on its thousands of environments. The network's size does not, and policies continue."""


def refusal(spec: v1.SessionSpec) -> str:
    """Return why a spec with defaults trains on CPU cores whatever its reward; empty if it does not.

    An environment pack simulates in its own process, on whatever its pool has.
    """
    environment = spec.environment.removeprefix("environments/")
    if load_card(environment).pack:
        return ""
    if not is_simulated(environment):
        return f"{environment} is not simulated by MuJoCo"
    if not continues(spec):
        return f"{spec.reward.algorithm} of the backend {spec.reward.backend} trains on CPU cores"
    return ""


def caution(spec: v1.SessionSpec) -> str:
    """Return how the simulation on a device is known to differ, and the remedy, for the plan; empty if it is not."""
    difference = known_difference(spec.environment.removeprefix("environments/"))
    return f"{difference}; a pool of CPU cores simulates as MuJoCo does" if difference else ""


def can_run(spec: v1.SessionSpec) -> bool:
    """Whether the environments of such a training can run on a device."""
    return is_simulated(spec.environment.removeprefix("environments/")) and not refusal(spec)


def fill(spec: v1.SessionSpec, *, request: v1.SessionSpec) -> None:
    """Replace defaults by those of the preset for thousands of environments; what the caller or a config set stays.

    :param spec: with defaults for a pool of CPU cores.
    :param request: as the caller wrote it.
    """
    if not can_run(spec):
        return
    preset, reward = device_preset(), spec.reward
    if not (request.reward.steps_per_member or request.reward.max_steps_per_member):
        reward.steps_per_member *= preset.steps_factor
        reward.max_steps_per_member *= preset.steps_factor
    for config in reward.configs:
        values = config.hyperparameters
        chosen = {field.name for field, _ in values.ListFields()}
        values.MergeFrom(
            v1.Hyperparameters(**{name: value for name, value in preset.ppo.items() if name not in chosen})
        )
        _fit(values)


def _fit(values: v1.Hyperparameters) -> None:
    """Let a minibatch of the preset be no larger than the rollout."""
    values.minibatch_size = min(values.minibatch_size, values.num_envs * values.num_steps)


def obstacle(context: SessionContext, report: judge_pb.CheckResponse) -> str:
    """Return why a reward that passed its check trains on CPU cores although the session's pool has devices; else empty."""
    if not is_requested(context) or not report.HasField("traceable") or report.traceable:
        return ""
    return findings_line(report.obstacles)


def is_requested(context: SessionContext) -> bool:
    """Whether the session trains on a device, if its reward can be compiled for it."""
    return context.spec.pool in context.engine.device_pools and can_run(context.spec)


def warn(context: SessionContext, iteration: v1.Iteration, number: int, *, key: str) -> None:
    """Append a warning for a reward that cannot be compiled for the device, before its training starts."""
    text = iteration.reward.device_obstacle
    if text:
        message = (
            f"iteration {number} trains on CPU cores instead of pool {context.spec.pool}, with their defaults: {text}"
        )
        context.store.warn("NOT_ON_DEVICE", message, iteration=number, key=f"traceable/{key}")


def is_refusal(row: AssignmentRow) -> bool:
    """Whether a training failed because its reward cannot be compiled for the device; a judge without JAX does not find it."""
    return row.work.train.on_device and row.assignment.failure.reason == REWARD_NOT_TRACEABLE


def move(context: SessionContext, number: int, row: AssignmentRow, *, tries: int) -> None:
    """Record why the iteration's next training runs on CPU cores, and warn.

    :param row: a training for which `refused` holds.
    """

    def record() -> None:
        changes = v1.Iteration(reward=v1.RewardProposal(device_obstacle=row.assignment.failure.message))
        warn(context, changes, number, key=f"{number}:{tries}:training")
        context.store.update_iteration(number, changes, ["reward.device_obstacle"])

    context.step(f"move:{number}:{tries}", record)


def training_values(context: SessionContext, iteration: v1.Iteration) -> tuple[v1.SessionSpec, v1.Iteration]:
    """Return the session's spec and an iteration with the values of its training, which may have moved to CPU cores.

    There, values of the device's preset give way to those of the environment's, except the network's size. A value that the
    caller gave stays, unless it equals the preset's.
    """
    if not is_requested(context) or not iteration.reward.device_obstacle:
        return context.spec, iteration
    spec, moved = v1.SessionSpec(), v1.Iteration()
    spec.CopyFrom(context.spec)
    moved.CopyFrom(iteration)
    factor, preset = device_preset().steps_factor, load_preset(context.environment)
    if spec.reward.steps_per_member == factor * preset.steps_per_member:
        spec.reward.steps_per_member //= factor
        spec.reward.max_steps_per_member //= factor
    for config in moved.reward.configs:
        _clear(config.hyperparameters)
    return spec, moved


def _clear(values: v1.Hyperparameters) -> None:
    preset = v1.Hyperparameters(**device_preset().ppo)
    preset.minibatch_size = min(preset.minibatch_size, values.num_envs * values.num_steps)
    for name in _BATCH:
        if getattr(values, name) == getattr(preset, name):
            values.ClearField(name)  # type: ignore[arg-type]


def assign(context: SessionContext, iteration: v1.Iteration, task: work.TrainAssignment) -> None:
    """Set where a training runs."""
    if not is_requested(context):
        return
    task.on_device = not iteration.reward.device_obstacle
    if not task.on_device:
        task.pool = context.engine.cpu_pool
