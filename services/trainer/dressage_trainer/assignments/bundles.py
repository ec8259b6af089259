"""The policy bundle of a candidate: weights, card and ONNX file of parameters, as trained members have it; or a program."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from importlib import metadata as distributions
from pathlib import Path

from dressage.policies import CARD_FILE, WEIGHTS_FILE, Policy, ProgramPolicy, to_onnx
from dressage.policies.kinds import PolicySpec, kind
from dressage.programs.families import ProgramTask
from dressage.programs.pretty import to_python
from numpy.typing import ArrayLike

from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.assignments.requests import Task
from dressage_trainer.lease.files import put_files

ONNX_FILE = "policy.onnx"
_PACKAGES = ("dressage", "gymnasium", "numpy")
_PROGRAM_PACKAGES = ("dressage", "numba", "numpy")


async def store_bundle(
    context: AssignmentContext,
    candidate: str,
    spec: PolicySpec,
    parameters: ArrayLike,
    *,
    task: Task,
    provenance: Mapping[str, str],
) -> str:
    """Store a candidate's policy, and return the prefix of its bundle, relative to the assignment.

    :param parameters: (n,), as `requests.parameters_of` returns them.
    :param provenance: origin of the policy, for its card.
    """
    folder = context.scratch / "policies" / candidate
    versions = {name: distributions.version(name) for name in _PACKAGES}
    chosen = kind(spec.kind)
    card = chosen.card(
        spec,
        environment=task.card.id,
        environment_options=task.options,
        provenance={**provenance, "candidate": candidate, "versions": versions},
    )
    policy = Policy(weights=chosen.weights(spec, parameters), card=card)
    prefix = f"candidates/{candidate}/policy"
    try:
        await asyncio.to_thread(_write, policy, folder)
        names = (WEIGHTS_FILE, CARD_FILE, ONNX_FILE)
        await put_files(context, {f"{prefix}/{name}": folder / name for name in names})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return prefix


async def store_program(
    context: AssignmentContext,
    candidate: str,
    program: str,
    *,
    task: ProgramTask,
    states: Sequence[int],
    provenance: Mapping[str, str],
) -> str:
    """Store a program's bundle, and return its prefix, relative to the assignment.

    :param program: its canonical text.
    :param states: initial states that it is played on.
    """
    policy = ProgramPolicy(
        program=program,
        python=to_python(task.parse(program)).text,
        environment=task.environment,
        profile=task.profile,
        report_states=tuple(states),
        provenance={**provenance, "versions": {name: distributions.version(name) for name in _PROGRAM_PACKAGES}},
    )
    folder, prefix = context.scratch / "policies" / candidate, f"candidates/{candidate}/policy"
    try:
        await asyncio.to_thread(policy.save, folder)
        await put_files(context, {f"{prefix}/{name}": folder / name for name in policy.files()})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return prefix


def _write(policy: Policy, folder: Path) -> None:
    policy.save(folder)
    to_onnx(policy, folder / ONNX_FILE)
