"""Converts the options of `run` and `train` to the spec of a session; errors name the option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.client.names import environment_name
from dressage.sdk import methods
from dressage.sdk.criteria import read_criteria
from dressage.sdk.files import read_source
from dressage.sdk.role_options import set_roles
from dressage.sdk.session_file import read_spec

_MAX_INTENT = 8_000


@dataclass(frozen=True)
class SpecOptions:
    """Options of a session; None and 0 mean the default of the server."""

    intent: str
    environment: str
    model: str | Sequence[str] = ""
    """A name, or several: NAME for the session, ROLE=NAME for a role; so are `thinking` and `api_base`."""
    thinking: str | Sequence[str] = ""
    api_base: str | Sequence[str] = ""
    provider_wait: float | None = None
    """Minutes."""
    seeds: int = 0
    seed: int = 0
    steps: int = 0
    iterations: int = 0
    threshold: float = 0.0
    configs: Sequence[str] = field(default=())
    environment_options: Sequence[str] = field(default=())
    reward: Path | str | None = None
    """A file, or the source itself; so is `judge`."""
    judge: Path | str | None = None
    criteria: Path | Sequence[pb.IntentCriterion] | None = None
    budget_dollars: float | None = None
    budget_tokens: int = 0
    budget_steps: int = 0
    budget_minutes: float | None = None
    variants: bool = False
    tune: bool | None = None
    early_stop: bool | None = None
    """None: for trainings of one config."""
    patience: int = 0
    from_parent: str = ""
    checkpoint: str = ""
    approve: bool = False
    video: str = ""
    video_options: Sequence[str] = field(default=())
    evaluation_episodes: int = 0
    train_only: bool = False
    backend: str = ""
    algorithm: str = ""
    pool: str = ""
    method: str = ""
    target: float | None = None
    """The setting `target` of a search method."""
    settings: Sequence[str] = field(default=())


_CHECKPOINTS = {
    "": pb.CHECKPOINT_CHOICE_UNSPECIFIED,
    "last": pb.CHECKPOINT_CHOICE_LAST,
    "best": pb.CHECKPOINT_CHOICE_BEST,
}
_REWARD_OPTIONS = {
    "seeds": "--seeds",
    "steps": "--steps",
    "configs": "--config",
    "reward": "--reward",
    "variants": "--variants",
    "tune": "--tune",
    "early_stop": "--early-stop",
    "patience": "--patience",
    "from_parent": "--from-parent",
    "checkpoint": "--checkpoint",
    "backend": "--backend",
    "algorithm": "--algorithm",
    "evaluation_episodes": "--evaluation-episodes",
}
"""Options that are settings of the method `reward`."""


def recorded(
    folder: Path, *, intent: str, environment: str, model: str | Sequence[str], method: str = ""
) -> pb.SessionSpec:
    """Return the spec of a recorded session: `session.json` of its folder, with the recording as the model.

    :raises InvalidArgument: if there is no recording, or an option is given that the recording sets.
    """
    for option, value in (("INTENT", intent), ("--env", environment), ("--model", model), ("--method", method)):
        if value:
            raise errors.InvalidArgument(field=option, problem="not allowed with --replay, which sets it", value=value)
    spec = read_spec(folder / "session.json", field="--replay")
    spec.model = f"recorded/{folder.absolute().name}"
    spec.roles.clear()
    return spec


def make_spec(options: SpecOptions, base: pb.SessionSpec | None = None) -> pb.SessionSpec:
    """Return the spec of a session.

    :param base: values for options that are not given.
    :raises InvalidArgument: for an empty or too long intent, an unreadable file, an invalid --config, --env-option,
        --video-option or --set.
    """
    if base is not None:
        options = replace(
            options,
            intent=options.intent or base.intent,
            environment=options.environment or base.environment,
            model=options.model or base.model,
        )
    intent = options.intent.strip()
    if not 0 < len(intent) <= _MAX_INTENT:
        seen = intent if not intent else f"{len(intent)} characters"
        raise errors.InvalidArgument(field="INTENT", value=seen, expected=f"1 to {_MAX_INTENT} characters of text")
    spec = pb.SessionSpec(
        intent=intent,
        environment=environment_name(_required(options.environment)),
        seed=options.seed,
        max_iterations=options.iterations,
        pass_threshold=options.threshold,
        pool=options.pool,
        approve_before_evaluation=options.approve,
        video_judging=_video(options.video),
    )
    set_roles(spec, model=options.model, thinking=options.thinking, api_base=options.api_base)
    if options.provider_wait is not None:
        spec.provider_wait.FromMilliseconds(round(60_000 * options.provider_wait))
    method = options.method or (methods.REWARD if base is None else methods.method_of(base))
    if method == methods.REWARD:
        spec.reward.CopyFrom(_reward(options))
    else:
        _refuse_reward_options(options, method)
    for text in options.environment_options:
        set_environment_option(spec.environment_options, text)
    for text in options.video_options:
        set_video_option(spec.video_options, text)
    if options.judge is not None:
        spec.judge_source = _source(options.judge, field="--judge")
    if options.criteria is not None:
        criteria = read_criteria(options.criteria) if isinstance(options.criteria, Path) else options.criteria
        spec.criteria.extend(criteria)
    if options.budget_dollars is not None:
        spec.budget.dollars = options.budget_dollars
    if options.budget_minutes is not None:
        spec.budget.wall_time.FromMilliseconds(round(60_000 * options.budget_minutes))
    if options.budget_tokens or options.budget_steps:
        spec.budget.tokens, spec.budget.env_steps = options.budget_tokens, options.budget_steps
    spec = spec if base is None else _merged(base, spec)
    settings = [*options.settings]
    if options.target is not None:
        settings.append(methods.target_setting(method, options.target))
    if settings or (base is None and method != methods.REWARD):
        methods.set_method(spec, method, settings)
    return spec


def _refuse_reward_options(options: SpecOptions, method: str) -> None:
    for name, option in _REWARD_OPTIONS.items():
        value = getattr(options, name)
        if value:
            problem = f"not an option of the method {method!r}"
            remedy = f"Set the options of {method!r} with --set."
            raise errors.InvalidArgument(field=option, problem=problem, value=str(value), remedy=remedy)


def _reward(options: SpecOptions) -> pb.RewardSpec:
    """Return the settings of the method `reward`."""
    return pb.RewardSpec(
        reward_source=_source(options.reward, field="reward file") if options.reward is not None else "",
        train_only=options.train_only,
        seeds=options.seeds,
        max_steps_per_member=options.steps,
        configs=[parse_config(text) for text in options.configs],
        evaluation_episodes=options.evaluation_episodes,
        backend=_one_of("--backend", options.backend, ("jax", "sb3")),
        algorithm=_one_of("--algorithm", options.algorithm, ("ppo", "sac")),
        tune_hyperparameters=options.tune,
        config_variants=options.variants,
        early_stop=options.early_stop,
        patience=options.patience,
        from_parent=from_parent_choice(options.from_parent),
        checkpoint=_CHECKPOINTS[_one_of("--checkpoint", options.checkpoint, ("last", "best"))],
    )


def from_parent_choice(text: str) -> pb.FromParent.ValueType:
    """Return the choice of `--from-parent`; empty: not set.

    :raises InvalidArgument: for another word than `auto`, `never` and `always`.
    """
    known = {name.removeprefix("FROM_PARENT_").lower(): value for name, value in pb.FromParent.items() if value}
    return known[_one_of("--from-parent", text, tuple(known))] if text else pb.FROM_PARENT_UNSPECIFIED


def _source(given: Path | str, *, field: str) -> str:
    return given if isinstance(given, str) else read_source(given, field=field)


def _required(environment: str) -> str:
    if not environment:
        raise errors.InvalidArgument(
            field="--env", problem="missing", expected="an environment, such as HalfCheetah-v5"
        )
    return environment


def _merged(base: pb.SessionSpec, given: pb.SessionSpec) -> pb.SessionSpec:
    """Return the base with the given values in place of its own; lists are replaced, not extended."""
    spec = pb.SessionSpec()
    spec.CopyFrom(base)
    if given.reward.configs:
        spec.reward.ClearField("configs")
    if given.reward.max_steps_per_member:  # the given steps are a bound, those of the base a length
        spec.reward.ClearField("steps_per_member")
    spec.MergeFrom(given)
    return spec


def _one_of(option: str, given: str, known: tuple[str, ...]) -> str:
    if given and given not in known:
        raise errors.InvalidArgument(field=option, value=given, expected=" or ".join(known))
    return given


def _video(text: str) -> pb.VideoJudging.ValueType:
    known = {name.removeprefix("VIDEO_JUDGING_").lower(): value for name, value in pb.VideoJudging.items() if value}
    if not text:
        return pb.VIDEO_JUDGING_UNSPECIFIED
    if text not in known:
        raise errors.InvalidArgument(field="--video", value=text, expected=f"one of {', '.join(known)}")
    return known[text]


def parse_config(text: str) -> pb.Config:
    """Return the config of `ID:name=value,name=value`; hidden sizes are written `64x64`.

    :raises InvalidArgument: naming an unknown or repeated hyperparameter, or a value of another type.
    """
    identifier, colon, rest = text.partition(":")
    if not colon:
        raise errors.InvalidArgument(
            field="--config", value=text, expected="ID:name=value,…, for example fast:learning_rate=1e-3,epochs=4"
        )
    config = pb.Config(id=identifier.strip())
    known = pb.Hyperparameters.DESCRIPTOR.fields_by_name
    seen: set[str] = set()
    for pair in filter(None, (part.strip() for part in rest.split(","))):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in known:
            raise errors.InvalidArgument(
                field=f"--config {identifier}",
                problem="unknown hyperparameter",
                value=name,
                expected=f"one of {', '.join(known)}",
            )
        if name in seen:
            raise errors.InvalidArgument(
                field=f"--config {identifier} {name}", problem="given more than once", value=pair, expected="one value"
            )
        seen.add(name)
        _set(config.hyperparameters, known[name], value)
    return config


def set_environment_option(options: pb.EnvironmentOptions, text: str) -> None:
    """Set one option of the environment from `NAME=VALUE`; see `_set_field`."""
    _set_field(options, text, option="--env-option", remedy="`dressage envs show ID` lists those of an environment.")


def set_video_option(options: pb.VideoOptions, text: str) -> None:
    """Set one option of the video judge from `NAME=VALUE`; see `_set_field`."""
    _set_field(options, text, option="--video-option")


def _set_field(options: pb.EnvironmentOptions | pb.VideoOptions, text: str, *, option: str, remedy: str = "") -> None:
    """Set one field of a message from `NAME=VALUE`.

    :param option: name of the option, for errors.
    :raises InvalidArgument: naming an unknown or repeated field, or a value of another type.
    """
    name, _, value = (part.strip() for part in text.partition("="))
    known = options.DESCRIPTOR.fields_by_name
    descriptor = known.get(name.replace("-", "_"))
    if descriptor is None:
        raise errors.InvalidArgument(
            field=option,
            problem="unknown option",
            value=text,
            expected=f"NAME=VALUE with one of {', '.join(known)}",
            remedy=remedy,
        )
    if descriptor in (field for field, _ in options.ListFields()):
        raise errors.InvalidArgument(
            field=f"{option} {descriptor.name}", problem="given more than once", value=text, expected="one value"
        )
    try:
        setattr(options, descriptor.name, _option_value(descriptor.type, value))
    except (ValueError, KeyError) as error:
        expected = _OPTION_KINDS[descriptor.type]
        raise errors.InvalidArgument(field=f"{option} {descriptor.name}", value=value, expected=expected) from error


# Numbers beyond 32 bits are refused here; the server checks all other limits.
_WHOLE_NUMBER = "a whole number below 2147483648"
_OPTION_KINDS = {
    FieldDescriptor.TYPE_BOOL: "true or false",
    FieldDescriptor.TYPE_DOUBLE: "a number",
    FieldDescriptor.TYPE_INT32: _WHOLE_NUMBER,
    FieldDescriptor.TYPE_STRING: "a name",
}


def _option_value(kind: int, text: str) -> int | float | bool | str:
    if kind == FieldDescriptor.TYPE_STRING:
        return text
    if kind == FieldDescriptor.TYPE_BOOL:
        return methods.TRUTH[text.lower()]
    return float(text) if kind == FieldDescriptor.TYPE_DOUBLE else int(text)


def _set(hyperparameters: pb.Hyperparameters, descriptor: Any, text: str) -> None:
    try:
        if descriptor.name == "hidden_sizes":
            hyperparameters.hidden_sizes.extend(int(size) for size in text.lower().split("x"))
        elif descriptor.type == FieldDescriptor.TYPE_DOUBLE:
            setattr(hyperparameters, descriptor.name, float(text))
        else:
            setattr(hyperparameters, descriptor.name, int(text))
    except ValueError as error:
        if descriptor.name == "hidden_sizes":
            expected = "sizes such as 64x64"
        else:
            expected = "a number" if descriptor.type == FieldDescriptor.TYPE_DOUBLE else _WHOLE_NUMBER
        raise errors.InvalidArgument(field=f"--config {descriptor.name}", value=text, expected=expected) from error
