"""What is stored of a candidate: its policy bundle, and the rollouts that are kept, those of the first seeds and others by
their return.

An episode depends on policy and seed only, so one that was chosen by its return is recorded by playing it again, on stock
Gymnasium or, for a program, in the traced interpreter. Those repetitions do not count as episodes of the evaluation.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata as distributions
from pathlib import Path

import numpy as np
from dressage.api.v1 import session_pb2
from dressage.policies import CARD_FILE, WEIGHTS_FILE, Policy, ProgramPolicy, to_onnx
from dressage.policies.kinds import PolicySpec, kind
from dressage.programs.families import ProgramTask
from dressage.programs.pretty import to_python
from numpy.typing import ArrayLike

from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.assignments.requests import Task
from dressage_trainer.evaluation.player_pool import PlayedEpisodes
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


FIRST = "first"
"""Label of the rollouts of the first seeds."""

Record = Callable[[int], Awaitable[PlayedEpisodes]]
"""Plays and records the episode of the seed with this index."""


def episodes_by_label(labels: Sequence[str], returns: Sequence[float]) -> dict[str, int]:
    """Return the index of the episode of each label; of equal ones the first.

    :param labels: those of ``EvaluateAssignment.kept``; ``median`` and ``nearest_mean``: the return nearest to it.
    :param returns: at least one.
    """
    values = np.asarray(returns, np.float64)
    with np.errstate(invalid="ignore"):
        distances = {
            "worst": values,
            "best": -values,
            "median": np.abs(values - np.median(values)),
            "nearest_mean": np.abs(values - values.mean()),
        }
    # A return that is not a number is chosen last.
    return {label: int(np.argmin(np.nan_to_num(distances[label], nan=np.inf))) for label in labels}


async def store_rollouts(
    context: AssignmentContext,
    message: session_pb2.CandidateResult,
    played: PlayedEpisodes,
    *,
    record: Record,
) -> None:
    """Record what is not recorded yet, upload the rollouts that the assignment keeps and add them to the result.

    A rollout is stored once, as ``candidates/{id}/rollouts/{seed}.npz`` (a program's as ``.json``), and listed once for each of
    its labels.

    :param played: all episodes, in the order of the seeds; its recorded ones are used.
    """
    evaluate = context.assignment.evaluate
    chosen = [(FIRST, index) for index in range(min(evaluate.kept_rollouts, len(evaluate.seeds)))]
    chosen += episodes_by_label(evaluate.kept, played.returns).items()
    recordings = {index: (path, played.returns[index]) for index, path in enumerate(played.rollouts)}
    files: dict[str, Path] = {}
    for label, index in chosen:
        if index not in recordings:
            again = await record(index)
            recordings[index] = (again.rollouts[0], again.returns[0])
        path, value = recordings[index]
        key = f"candidates/{message.id}/rollouts/{evaluate.seeds[index]}{path.suffix}"
        files[key] = path
        message.rollouts.add(
            artifact=key, label=label, seed=evaluate.seeds[index], proposed_return=value, **{"return": value}
        )
    await put_files(context, files)
    shutil.rmtree(context.scratch / "rollouts" / message.id, ignore_errors=True)
