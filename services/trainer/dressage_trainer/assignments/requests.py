"""From an `EvaluateAssignment` to checked values: what concerns all its candidates, and each candidate for itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec, kind

from dressage_trainer.checks import Task, check_count, policy_of, task_of

MAX_SEEDS = 100_000
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")


@dataclass(frozen=True)
class Evaluation:
    """A checked `EvaluateAssignment`."""

    task: Task
    policy: PolicySpec | None
    """Shape of the candidates that are parameters; None where there are none."""
    seeds: tuple[int, ...]
    kept_rollouts: int


def evaluation_of(assignment: pb.EvaluateAssignment) -> Evaluation:
    """The checked assignment; its candidates are checked one by one, by `parameters_of` and `check_bundle`.

    :raises InvalidArgument: for anything that concerns all candidates.
    """
    task = task_of(assignment.environment, assignment.options)
    if not 1 <= len(assignment.seeds) <= MAX_SEEDS:
        raise InvalidArgument(field="seeds", value=list(assignment.seeds[:3]), expected=f"1 to {MAX_SEEDS} seeds")
    for index, seed in enumerate(assignment.seeds):
        check_count(f"seeds[{index}]", seed, least=0)
    if not assignment.candidates:
        raise InvalidArgument(field="candidates", value=[], expected="at least one candidate")
    ids: set[str] = set()
    for index, candidate in enumerate(assignment.candidates):
        if not _ID.match(candidate.id) or candidate.id in ids:
            expected = "a unique id of 1 to 100 letters, digits and '_.-'"
            raise InvalidArgument(field=f"candidates[{index}].id", value=candidate.id, expected=expected)
        ids.add(candidate.id)
    small = any(candidate.WhichOneof("proposal") == "parameters" for candidate in assignment.candidates)
    return Evaluation(
        task=task,
        policy=policy_of(assignment.policy, task.card) if small else None,
        seeds=tuple(assignment.seeds),
        kept_rollouts=check_count("kept_rollouts", assignment.kept_rollouts, least=0),
    )


def parameters_of(index: int, values: Sequence[float], spec: PolicySpec) -> np.ndarray:
    """A candidate's numbers, (n,) float64.

    :param index: the candidate's place in the assignment, for errors.
    :raises InvalidArgument: for another number of them, or values that the kind cannot have.
    """
    field = f"candidates[{index}].parameters.values"
    vector, size = np.array(values, np.float64), kind(spec.kind).size(spec)
    if len(vector) != size:
        expected = f"{size} numbers, as many as the {spec.kind} policy has"
        raise InvalidArgument(field=field, value=f"{len(vector)} numbers", expected=expected)
    unusable = np.flatnonzero(~np.isfinite(vector))
    if len(unusable):
        first = int(unusable[0])
        raise InvalidArgument(field=f"{field}[{first}]", value=float(vector[first]), expected="a finite number")
    try:
        kind(spec.kind).weights(spec, vector)
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error.message}", field=field) from error
    return vector


def check_bundle(index: int, card: Mapping[str, Any], task: Task) -> None:
    """Check that a stored policy acts in the spaces of the environment.

    :param card: contents of the bundle's card.
    :raises InvalidArgument: if it does not.
    """
    environment = task.card
    # A table numbers the observations that the environment gives as one-hot rows.
    seen = (card.get("observation_size") or card.get("observation_count"), card["action"].get("num_actions") or 0)
    actions = 0 if environment.num_actions else environment.action_size
    if seen != (environment.observation_size, environment.num_actions) or len(card["action"].get("low", ())) != actions:
        shown = f"a policy of {card['environment']['id']} with {seen[0]} observations"
        expected = f"a policy for {environment.id}: {environment.observation_size} observations, " + (
            f"{environment.num_actions} discrete actions" if environment.num_actions else f"{actions} action components"
        )
        raise InvalidArgument(field=f"candidates[{index}].bundle", value=shown, expected=expected)
