"""Translate the protobuf of an assignment into checked values.

Train and score assignments become plain values for the sandboxed processes; their contents are checked there. Evaluate and
search assignments are checked here. An invalid value raises `InvalidArgument`, whose message names the field, the value and
what is expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.envs import custom
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.errors import InvalidArgument, NotFound
from dressage.policies.card import OPTIONAL_BIAS
from dressage.policies.kinds import PolicySpec, kind
from dressage.policies.kinds.spec import FEATURES, HIDDEN
from google.protobuf.message import Message

from dressage_trainer.messages import MemberTask, TrainSpec
from dressage_trainer.search.algorithms import ALGORITHMS
from dressage_trainer.search.messages import MAX_PARAMETERS, SearchTask

MAX_SEEDS = 100_000
MAX_EPISODES = 10_000
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_MAX_INTEGER = 2**63 - 1
_MAX_THREADS = 64
_MAX_SCALE = 1e30
"""Ten standard deviations of it are well within single precision."""


# -- train and score


def options_of(options: session_pb2.EnvironmentOptions) -> dict[str, Any]:
    """Return the options that are set, as `EnvOptions` names them."""
    return _set_fields(options)


def hyperparameters_of(hyperparameters: session_pb2.Hyperparameters) -> dict[str, Any]:
    """Return the hyperparameters that are set, as `training.Hyperparameters` names them."""
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
    :param memory_bytes: the learner's limit.
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


# -- evaluate and search


@dataclass(frozen=True)
class Task:
    """The environment of an assignment."""

    card: EnvironmentCard
    options: dict[str, Any]
    """Options that are set, by name."""

    @property
    def longest_episode(self) -> int:
        """Steps after which an episode ends at the latest."""
        return int(self.options.get("max_episode_steps", self.card.max_episode_steps))


def task_of(environment: str, options: session_pb2.EnvironmentOptions) -> Task:
    """Return the environment with its options.

    :raises InvalidArgument: for an unknown environment, or an option that it does not have.
    """
    values = options_of(options)
    try:
        return Task(EnvOptions.from_dict(values).check(environment), values)
    except NotFound as error:
        raise InvalidArgument(f"environment: {error.message}", field="environment", reason=error.reason) from error


def policy_of(policy: pb.PolicySpec, card: EnvironmentCard) -> PolicySpec:
    """Return the shape of a small policy for an environment.

    :raises InvalidArgument: for an invalid shape, or one with too many parameters.
    """
    if policy.kind == "table" and not card.id.startswith(custom.GYMNASIUM):
        expected = f"linear, mlp or random_features for {card.id}: a table needs discrete observations"
        raise InvalidArgument(field="policy.kind", value=policy.kind, expected=expected)
    try:
        spec = PolicySpec.of(
            policy.kind,
            card,
            bias=policy.bias or policy.kind not in OPTIONAL_BIAS,
            hidden=tuple(policy.hidden_sizes) or HIDDEN,
            features=policy.features or FEATURES,
            seed=policy.seed,
        )
        size = kind(spec.kind).size(spec)
    except InvalidArgument as error:
        raise InvalidArgument(f"policy.{error.message}", field=f"policy.{error.field}") from error
    if size > MAX_PARAMETERS:
        expected = f"a policy of at most {MAX_PARAMETERS} parameters; choose smaller layers or fewer features"
        raise InvalidArgument(field="policy", value=size, expected=expected)
    return spec


def check_count(name: str, value: int, *, least: int = 1, most: int = _MAX_INTEGER) -> int:
    """Return the number if it is in the range.

    :raises InvalidArgument: otherwise.
    """
    if not least <= value <= most:
        expected = f"an integer of at least {least}" if most == _MAX_INTEGER else f"an integer from {least} to {most}"
        raise InvalidArgument(field=name, value=value, expected=expected)
    return value


# -- evaluate


@dataclass(frozen=True)
class Evaluation:
    """A checked `EvaluateAssignment`."""

    task: Task
    policy: PolicySpec | None
    """Shape of the candidates that are parameters; None if there are none."""
    seeds: tuple[int, ...]
    kept_rollouts: int


def evaluation_of(assignment: pb.EvaluateAssignment) -> Evaluation:
    """Return the checked assignment. `parameters_of` and `check_bundle` check its candidates one by one.

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
    """Return a candidate's numbers, (n,) float64.

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


# -- search


def search_task(assignment: pb.SearchAssignment, *, cores: int) -> SearchTask:
    """Return the checked assignment.

    :raises InvalidArgument: for an invalid field.
    """
    if assignment.algorithm not in ALGORITHMS:
        raise InvalidArgument(
            field="algorithm", value=assignment.algorithm, expected=f"one of {', '.join(map(repr, ALGORITHMS))}"
        )
    task = task_of(assignment.environment, assignment.options)
    scale, target = assignment.scale or 1.0, assignment.target if assignment.HasField("target") else None
    if not 0 < scale <= _MAX_SCALE:  # refuses NaN as well
        expected = f"a positive number of at most {_MAX_SCALE:g}, or 0 for 1"
        raise InvalidArgument(field="scale", value=assignment.scale, expected=expected)
    if target is not None and not math.isfinite(target):
        raise InvalidArgument(field="target", value=target, expected="a finite score, or none to use the whole budget")
    if not assignment.checkpoint_seconds >= 0:
        expected = "seconds between two checkpoints, at least 0"
        raise InvalidArgument(field="checkpoint_seconds", value=assignment.checkpoint_seconds, expected=expected)
    episodes = check_count("episodes", assignment.episodes, most=MAX_EPISODES)
    return SearchTask(
        environment=assignment.environment,
        options=task.options,
        algorithm=assignment.algorithm,
        policy=policy_of(assignment.policy, task.card),
        budget=check_count("budget", assignment.budget),
        episodes=episodes,
        seed=check_count("seed", assignment.seed, least=0),
        episode_seed=check_count("episode_seed", assignment.episode_seed, least=0, most=2**63 - 1 - episodes),
        target=target,
        scale=scale,
        threads=min(max(1, cores), _MAX_THREADS),
    )
