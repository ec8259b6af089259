"""What the processes of a trainer get from an assignment, and the checks that no rule of its proto can state.

Train and score assignments become plain values for the sandboxed processes; their contents are checked there. Evaluate and
search assignments are validated by the rules in `run_service.proto`, and here against the environment's card. An invalid value
raises `InvalidArgument`, whose message names the field, the value and what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts.policy_host import PlayLimits
from dressage.envs import custom
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.errors import InvalidArgument, NotFound
from dressage.policies.card import OPTIONAL_BIAS
from dressage.policies.kinds import PolicySpec, kind
from dressage.policies.kinds.spec import FEATURES
from dressage.policies.sb3_baselines import BASELINES, training_episodes
from dressage.programs.engine.trees import flatten
from dressage.programs.families import MAX_STATE, ProgramTask, program_task
from dressage.programs.languages.store import language_code
from dressage.programs.search.settings import Schedule
from dressage.programs.syntax import to_text
from dressage.serving.validation import MessageValidator
from google.protobuf.message import Message

from dressage_trainer.messages import MemberStart, MemberTask, TrainSpec
from dressage_trainer.search.algorithms import ALGORITHMS, check_algorithm
from dressage_trainer.search.messages import MAX_PARAMETERS, PROGRAM_ALGORITHMS, ProgramSearchTask, SearchTask

NEIGHBOURS = 250
_MAX_THREADS = 64
_MAX_STORED = 1 << 24
"""Numbers of one small policy with its fixed weights, at most."""


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
    task: pb.TrainAssignment,
    *,
    cores: int = 1,
    resume: Sequence[str] = (),
    memory_bytes: int = 0,
    checkpoint_bytes: int = 0,
    starts: Mapping[str, MemberStart] = MappingProxyType({}),
    granted_steps: int = 0,
) -> TrainSpec:
    """Return the learner's task.

    :param cores: threads that it may use.
    :param starts: policies that members continue from, by id.
    :param granted_steps: see `TrainSpec`.
    :param resume: checkpoints to resume from, relative to the learner's folder, the newest first.
    :param memory_bytes: the learner's limit.
    :param checkpoint_bytes: limit of its files.
    """
    members = tuple(
        MemberTask(
            member=member.id,
            hyperparameters=hyperparameters_of(member.hyperparameters),
            seed=member.seed,
            start=starts.get(member.id),
        )
        for member in task.members
    )
    return TrainSpec(
        environment=task.environment,
        options=options_of(task.options),
        reward_source=task.reward_source,
        members=members,
        steps_per_member=task.steps_per_member,
        max_steps=task.max_steps_per_member,
        granted_steps=max(granted_steps, task.granted_steps),
        evaluations=max(1, task.evaluations),
        checkpoint_seconds=task.checkpoint_seconds,
        threads=cores,
        backend=task.backend or "jax",
        algorithm=task.algorithm,
        on_device=task.on_device,
        provenance=dict(task.provenance),
        resume=resume[0] if resume else None,
        resume_earlier=tuple(resume[1:]),
        memory_bytes=memory_bytes,
        checkpoint_bytes=checkpoint_bytes,
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
    # The card of an environment that was added by `gymnasium:` may not say whether observations are discrete.
    if policy.kind == "table" and not card.num_observations and not card.id.startswith(custom.GYMNASIUM):
        expected = f"linear, mlp, random_features or projected_mlp for {card.id}: a table needs discrete observations"
        raise InvalidArgument(field="policy.kind", value=policy.kind, expected=expected)
    try:
        spec = PolicySpec.of(
            policy.kind,
            card,
            bias=policy.bias or policy.kind not in OPTIONAL_BIAS,
            hidden=tuple(policy.hidden_sizes),
            features=policy.features or FEATURES,
            seed=policy.seed,
            latent=tuple(policy.latent_sizes),
            activation=policy.activation or "tanh",
            squash=policy.squash,
        )
        size = kind(spec.kind).size(spec)
        weights = sum(math.prod(shape) for shape in kind(spec.kind).shapes(spec).values())
    except InvalidArgument as error:
        raise InvalidArgument(f"policy.{error.message}", field=f"policy.{error.field}") from error
    if size > MAX_PARAMETERS:
        expected = f"a policy of at most {MAX_PARAMETERS} parameters; choose smaller layers or fewer features"
        raise InvalidArgument(field="policy", value=size, expected=expected)
    if weights > _MAX_STORED:  # fixed weights are no parameters
        expected = f"a policy of at most {_MAX_STORED} weights; choose smaller layers, fewer features or fewer latents"
        raise InvalidArgument(field="policy", value=weights, expected=expected)
    return spec


# -- evaluate


@dataclass(frozen=True)
class Evaluation:
    """What an `EvaluateAssignment` means for this environment."""

    task: Task
    policy: PolicySpec | None
    """Shape of the candidates that are parameters; None if there are none."""


def evaluation_of(assignment: pb.EvaluateAssignment) -> Evaluation:
    """Return what a valid assignment means. `parameters_of` and `check_bundle` check its candidates one by one.

    :raises InvalidArgument: for anything that concerns all candidates.
    """
    MessageValidator()(assignment)
    task = task_of(assignment.environment, assignment.options)
    small = any(candidate.WhichOneof("proposal") == "parameters" for candidate in assignment.candidates)
    return Evaluation(task, policy_of(assignment.policy, task.card) if small else None)


def play_limits_of(limits: pb.CodeLimits) -> PlayLimits:
    """Return the limits of code candidates."""
    return PlayLimits(**_set_fields(limits))


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
        value = f"a policy of {card['environment']['id']} with {seen[0]} observations"
        expected = f"a policy for {environment.id}: {environment.observation_size} observations, " + (
            f"{environment.num_actions} discrete actions" if environment.num_actions else f"{actions} action components"
        )
        raise InvalidArgument(field=f"candidates[{index}].bundle", value=value, expected=expected)


# -- search


def search_task(assignment: pb.SearchAssignment, *, cores: int) -> SearchTask:
    """Return the search of an assignment.

    :raises InvalidArgument: for an invalid field.
    """
    MessageValidator()(assignment)
    if assignment.algorithm not in (*ALGORITHMS, *BASELINES):
        expected = f"one of {', '.join(map(repr, (*ALGORITHMS, *BASELINES)))}"
        raise InvalidArgument(field="algorithm", value=assignment.algorithm, expected=expected)
    task = task_of(assignment.environment, assignment.options)
    if task.card.pack:
        expected = (
            f"an environment of Dressage itself; processes of the environment pack {task.card.pack} run no search"
        )
        raise InvalidArgument(field="environment", value=task.card.id, expected=expected)
    if assignment.algorithm in BASELINES:
        policy = _baseline_policy(assignment, task.card)
        if not training_episodes(budget=assignment.budget, episodes=assignment.episodes):
            expected = f"at least 2 for {assignment.algorithm}, which trains one episode for each evaluation"
            raise InvalidArgument(field="budget", value=assignment.budget, expected=expected)
    else:
        policy = policy_of(assignment.policy, task.card)
        check_algorithm(assignment.algorithm, policy, budget=assignment.budget)
    return SearchTask(
        environment=assignment.environment,
        options=task.options,
        algorithm=assignment.algorithm,
        policy=policy,
        budget=assignment.budget,
        episodes=assignment.episodes,
        seed=assignment.seed,
        episode_seed=assignment.episode_seed,
        target=_target(assignment),
        scale=assignment.scale or 1.0,
        threads=min(max(1, cores), _MAX_THREADS),
        range=assignment.range,
        step_size=assignment.step_size,
    )


def program_search_task(assignment: pb.SearchAssignment, *, cores: int) -> ProgramSearchTask:
    """Return the search over programs of an assignment.

    :raises InvalidArgument: for an invalid field.
    """
    MessageValidator()(assignment)
    if assignment.algorithm not in PROGRAM_ALGORITHMS:
        expected = f"one of {', '.join(map(repr, PROGRAM_ALGORITHMS))} for programs"
        raise InvalidArgument(field="algorithm", value=assignment.algorithm, expected=expected)
    settings = assignment.program
    task = program_task_of(assignment.environment, settings.profile, field="program.profile")
    if settings.programs and assignment.algorithm == "random":
        expected = "none for the algorithm random, or hill_climb"
        raise InvalidArgument(field="program.programs", value=f"{len(settings.programs)} programs", expected=expected)
    first, states = assignment.episode_seed, assignment.episodes
    _check_state("episode_seed", first, most=MAX_STATE - states)
    schedule = _set_fields(settings.schedule)
    try:
        Schedule(**schedule)
    except InvalidArgument as error:
        raise InvalidArgument(f"program.{error.message}", field=f"program.{error.field}") from error
    return ProgramSearchTask(
        environment=assignment.environment,
        profile=task.profile,
        algorithm=assignment.algorithm,
        programs=tuple(program_text(task, text, f"program.programs[{i}]") for i, text in enumerate(settings.programs)),
        states=tuple(range(first, first + states)),
        budget=assignment.budget,
        seed=assignment.seed,
        target=_target(assignment),
        neighbours=settings.neighbours or NEIGHBOURS,
        schedule=schedule,
        threads=min(max(1, cores), _MAX_THREADS),
        code=language_code(assignment.environment),
    )


def _target(assignment: pb.SearchAssignment) -> float | None:
    return assignment.target if assignment.HasField("target") else None


def _check_state(field: str, number: int, *, most: int) -> None:
    """Refuse the number of an initial state that no program is played from.

    :raises InvalidArgument: naming the field.
    """
    if number > most:
        raise InvalidArgument(field=field, value=number, expected=f"an integer from 0 to {most}")


def program_evaluation(assignment: pb.EvaluateAssignment) -> ProgramTask:
    """Return the task of an evaluation of programs.

    :raises InvalidArgument: for an environment without programs, or an invalid profile or state.
    """
    for index, seed in enumerate(assignment.seeds):
        _check_state(f"seeds[{index}]", seed, most=MAX_STATE)
    return program_task_of(assignment.environment, assignment.profile, field="profile")


def program_task_of(environment: str, profile: str, *, field: str) -> ProgramTask:
    """Return the task of programs.

    :param field: name of the profile's field.
    :raises InvalidArgument: for an environment without programs, or an unknown profile.
    """
    try:
        return program_task(environment, profile)
    except NotFound as error:
        raise InvalidArgument(f"environment: {error.message}", field="environment", reason=error.reason) from error
    except InvalidArgument as error:
        raise InvalidArgument(field=field, value=profile, expected=error.expected) from error


def program_text(task: ProgramTask, text: str, field: str) -> str:
    """Return the canonical text of a program.

    :param field: where it is, for errors.
    :raises InvalidArgument: if it is no program, or one that the engine cannot run.
    """
    try:
        program = task.parse(text)
        flatten(program, task.language)
        return to_text(program)
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error.message}", field=field, reason="PROGRAM_INVALID") from error


def _baseline_policy(assignment: pb.SearchAssignment, card: EnvironmentCard) -> PolicySpec:
    """Return the shape of a baseline's policy.

    :raises InvalidArgument: for actions that the algorithm does not have, or a policy that is not its own.
    """
    name, baseline, policy = assignment.algorithm, BASELINES[assignment.algorithm], pb.PolicySpec()
    if not (baseline.discrete if card.num_actions else baseline.continuous):
        have = "discrete" if card.num_actions else "continuous"
        fit = [other for other, one in BASELINES.items() if (one.discrete if card.num_actions else one.continuous)]
        expected = f"one of {', '.join(map(repr, fit))}: {card.id} has {have} actions"
        raise InvalidArgument(field="algorithm", value=name, expected=expected)
    policy.CopyFrom(assignment.policy)
    own = {
        "kind": "mlp",
        "activation": baseline.activation,
        "squash": baseline.squash,
    }
    stated = {"kind": policy.kind, "activation": policy.activation or "tanh", "squash": policy.squash}
    for entry, value in own.items():
        # What the numbers mean depends on these: whoever plays the result must know them.
        if stated[entry] != value:
            raise InvalidArgument(field=f"policy.{entry}", value=stated[entry], expected=f"{value!r} for {name}")
    if not policy.hidden_sizes:
        policy.hidden_sizes.extend(baseline.hidden)
    return policy_of(policy, card)
