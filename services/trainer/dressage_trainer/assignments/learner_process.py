"""The learner from the supervisor's side: how it is started, what it resumes from, and what its end means."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from pathlib import Path

import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.contracts.execute import line_of_stack
from dressage.errors import InvalidArgument, NotFound
from dressage.limits import CHECKPOINT_INDEX
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import LEARNER_LIMITS, Limits
from dressage.sandbox.process import Exit, SandboxProcess

from dressage_trainer.assignments.context import (
    AssignmentContext,
    assignment_refused,
    generated_code_failed,
    infrastructure_failed,
)
from dressage_trainer.assignments.delivery import Delivery
from dressage_trainer.lease.compiled import WARP, updates_of, warp_kernels_of
from dressage_trainer.lease.files import get_file
from dressage_trainer.lease.sandboxes import SandboxSpec
from dressage_trainer.messages import FailedMessage, MemberStart, ProgressMessage, TrainSpec, WarningMessage
from dressage_trainer.speed.threads import learner_environment

_OUT_OF_MEMORY_REMEDY = (
    "raise the memory of trainers (the pool's resources.limits.memory on Kubernetes), or train fewer members"
)

_LAST_SECONDS = 2.0
"""Time for a simulator to end by itself."""

LEARNER = "dressage_trainer.learner:learn"
SIMULATE = "dressage.envs.packs.batched.stepping:serve"
SIMULATOR = SandboxSpec(limits=Limits())
"""How the simulator of a pack's environments is started, but for what its pack sets."""
_GROUPS = {"sb3": "dressage_trainer.backends.sb3.groups"}
_OF_THE_MACHINE = frozenset({"OUT_OF_DISK", "LEARNER_IO", "NO_DECISION", "SIMULATOR_FAILED"})


def learner_sandbox(*, backend: str, cores: int, compiled: Path | None, on_device: bool = False) -> SandboxSpec:
    """Return how to start a learner.

    :param compiled: folder of compiled updates for its shapes; None if there is none.
    :param on_device: whether its environments run on a device.
    """
    access = gpu_access() if on_device else None
    variables = learner_environment(compilation_cache=compiled, on_gpu=access is not None)
    if on_device:
        variables["WARP_CACHE_PATH"] = WARP.folder  # in its own folder, see `place_warp_kernels`
    if access is not None:
        variables |= dict(access.env)
    compiled_folders = () if compiled is None else (compiled,)
    return SandboxSpec(
        limits=LEARNER_LIMITS,
        threads=cores,
        env=tuple(sorted(variables.items())),
        read_only=(*compiled_folders, *(access.read_only if access else ())),
        devices=access.devices if access else (),
        preload=("dressage_trainer.learner", _GROUPS.get(backend, "dressage_trainer.backends.stacked")),
    )


def is_cached(spec: TrainSpec) -> bool:
    """Whether the compiled updates of such a training are kept: those of the CPU pool."""
    return spec.backend == "jax" and not spec.on_device


def sandbox_of(context: AssignmentContext, spec: TrainSpec) -> tuple[SandboxSpec, bool]:
    """Return how to start the learner of a training, and whether its updates are compiled already."""
    compiled = None
    if context.compiled is not None and is_cached(spec):
        compiled = context.compiled.find(updates_of(spec))
    sandbox = learner_sandbox(backend=spec.backend, cores=spec.threads, compiled=compiled, on_device=spec.on_device)
    return sandbox, compiled is not None


def end_simulator(context: AssignmentContext, simulator: SandboxProcess) -> None:
    """End the process that simulates for a learner; it ends by itself once the learner has."""
    ended = simulator.wait(_LAST_SECONDS) or simulator.kill()
    if ended.kind not in ("ok", "killed"):
        log = structlog.get_logger("dressage.trainer.training")
        log.warning("the simulator ended", reason=ended.reason, tail=ended.stderr_tail[-4000:])
    context.sandboxes.end(simulator)


def progress_report(message: ProgressMessage) -> pb.ProgressReport:
    """Return the report of a learner's progress."""
    report = pb.ProgressReport(steps_per_second=message.steps_per_second, activity=message.activity)
    for member in message.members:
        report.members.add(member=member.member, env_step=member.env_step, metrics=member.metrics)
    return report


async def warp_kernels(context: AssignmentContext, spec: TrainSpec) -> Path | None:
    """Return the folder of the simulator's compiled kernels; None where the environments do not run on a device."""
    if not spec.on_device or context.compiled is None:
        return None
    return await asyncio.to_thread(context.compiled.prepare, warp_kernels_of(spec))


async def fetch_checkpoints(context: AssignmentContext, delivery: Delivery) -> list[Path]:
    """Download the checkpoint to resume from and the one before it. They contain the metrics too.

    :returns: the files, the newest first; none if training begins or has to restart.
    """
    newest = context.assignment.checkpoint
    if not newest:
        return []
    files = []
    for number, key in enumerate(await _stored_checkpoints(context, delivery)):
        try:
            files.append(await get_file(context, key, context.scratch / f"resume-{number}.safetensors"))
        except NotFound:
            structlog.get_logger("dressage.trainer.training").warning("a checkpoint is missing", key=key)
    if not files:
        message = f"{newest} and those before it are missing; training restarts"
        delivery.warn(WarningMessage("CHECKPOINT_MISSING", message))
    return files


async def _stored_checkpoints(context: AssignmentContext, delivery: Delivery) -> list[str]:
    """Return the keys of the checkpoint to resume from and of the one before it."""
    newest = context.assignment.checkpoint
    path = context.scratch / "index.json"
    try:
        await get_file(context, CHECKPOINT_INDEX, path)
        listed = [str(key) for key in json.loads(path.read_text())]
    except (NotFound, ValueError, TypeError):
        return [newest]
    # The index may be ahead of the last report that was accepted.
    earlier = listed[listed.index(newest) + 1 :] if newest in listed else []
    delivery.continue_from([newest, *earlier])
    # Two, because the newest may be damaged (decision 0014).
    return [newest, *earlier[:1]]


def failure_result(message: FailedMessage) -> pb.AssignmentResult:
    """Return the result of a learner that reports that it cannot continue."""
    if message.generated_code:
        return generated_code_failed(message.reason, message.message)
    if message.reason in _OF_THE_MACHINE:
        return infrastructure_failed(message.reason, message.message)
    return assignment_refused(message.reason, message.message)


def exit_result(ended: Exit | None, algorithm: str = "") -> pb.AssignmentResult:
    """Return the result of a learner that ended without a last message.

    :param ended: how it ended; None if it has not.
    :param algorithm: the training's algorithm.
    """
    if ended is None:
        message = "the learner closed its channel and did not end"
        return infrastructure_failed("LEARNER_CRASHED", message)
    if ended.stderr_tail:
        log = structlog.get_logger("dressage.trainer.training")
        log.warning("the learner ended", reason=ended.reason, tail=ended.stderr_tail[-4000:])
    message = f"the learner was ended: {ended.reason}"
    if ended.kind == "memory" and algorithm == "sac":  # not because of the reward
        advice = "SAC's replay buffers and their copies for checkpoints take most of it: train fewer members or steps"
        return assignment_refused("LEARNER_OUT_OF_MEMORY", f"{message}; {advice}")
    if ended.kind == "memory":
        return generated_code_failed("LEARNER_OUT_OF_MEMORY", message)
    if ended.kind == "stalled":
        line = line_of_stack(ended.stderr_tail)
        place = f" (line {line})" if line else ""
        return generated_code_failed("REWARD_STALLED", f"a loop in the reward{place} does not end: {ended.reason}")
    if ended.bound:
        return generated_code_failed("SANDBOX_LIMIT", message)
    if ended.code == -signal.SIGKILL:
        # Not by the supervisor: at a pod's memory limit the kernel kills the largest process, which is the learner.
        message = "the learner was killed, most likely by the kernel because memory ran out"
        return infrastructure_failed("OOM_KILLED", message, remedy=_OUT_OF_MEMORY_REMEDY)
    return infrastructure_failed("LEARNER_CRASHED", f"the learner ended: {ended.reason}")


async def fetch_starts(context: AssignmentContext) -> dict[str, MemberStart]:
    """Download the policies from which the members of a training continue; by member, none if all start anew.

    :raises InvalidArgument: if one is missing or has no trained network.
    """
    starts = {}
    for member in context.assignment.train.members:
        if member.HasField("start"):
            starts[member.id] = await _fetch_start(context, member)
    return starts


async def _fetch_start(context: AssignmentContext, member: pb.MemberSpec) -> MemberStart:
    folder, bundle = context.scratch / "starts" / member.id, member.start.bundle.rstrip("/")
    try:
        for name in (WEIGHTS_FILE, CARD_FILE):
            await get_file(context, f"{bundle}/{name}", folder / name)
        policy = load(folder)
    except NotFound as error:
        message = f"the policy that {member.id} is to continue from is missing in the store: {bundle}"
        raise InvalidArgument(message, field="start") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    description = policy.description
    provenance = {
        "policy": bundle,
        "env_steps": description.provenance.get("env_steps", 0),
        "value_network": "kept" if member.start.keeps_value else "reset",
    }
    return MemberStart(
        weights=dict(policy.weights),
        statistics={name: float(value) for name, value in description.statistics.items()},
        keeps_value=member.start.keeps_value,
        provenance=provenance,
    )
