"""The spec of a session from the arguments of `run` and `train`; errors name the argument as Python does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from dressage import errors
from dressage.api.arguments import SESSION
from dressage.api.v1 import session_pb2 as pb
from dressage.argument import Argument
from dressage.client.names import environment_name
from dressage.sdk import methods
from dressage.sdk.arguments import by_role
from dressage.sdk.fields import set_fields, set_value
from dressage.sdk.files import read_criteria, read_source
from dressage.sdk.session_file import read_spec

_MAX_INTENT = 8_000
_REWARD = f"{methods.REWARD}."
# What `make_spec` sets by itself: required, or of the chosen method.
_SPECIAL = {"intent", "env", "method", "settings", methods.TARGET}


def replay_spec(folder: Path, arguments: Mapping[str, Any]) -> pb.SessionSpec:
    """Return the spec of a recorded session: `session.json` of its folder, with the recording as the model.

    :raises InvalidArgument: if there is no recording, or an argument is given that the recording sets.
    """
    for name in ("intent", "env", "model", "method"):
        if value := arguments.get(name):
            raise errors.InvalidArgument(field=name, problem="not allowed with a replay, which sets it", value=value)
    spec = read_spec(folder / "session.json", field="replay")
    spec.model = f"recorded/{folder.absolute().name}"
    spec.roles.clear()
    return spec


def make_spec(arguments: Mapping[str, Any], base: pb.SessionSpec | None = None) -> pb.SessionSpec:
    """Return the spec of a session.

    :param arguments: values by the names in `dressage.api.arguments.SESSION`; None and what is empty mean not set. Sources are
        text or a `Path`, criteria a `Path` or messages.
    :param base: what is not set has its values; lists are replaced, not extended.
    :raises InvalidArgument: naming the argument.
    """
    values: dict[str, Any] = {
        name: value for name, value in arguments.items() if value or isinstance(value, int | float)
    }
    spec = pb.SessionSpec()
    if base is not None:
        spec.CopyFrom(base)
    spec.intent = _intent(values.get("intent", spec.intent))
    spec.environment = environment_name(_environment(values.get("env", spec.environment)))
    method = values.get("method") or (methods.REWARD if base is None else methods.method_of(base))
    if method == methods.REWARD:
        spec.reward.SetInParent()
    general = [argument for argument in SESSION if argument.name not in _SPECIAL]
    _refuse_reward_arguments(general, values, method)
    set_arguments(spec, general, values)
    settings = dict(values.get("settings") or {})
    if (target := values.get(methods.TARGET)) is not None:
        methods.refuse_target(method, target)
        if methods.TARGET in settings:
            problem = "given more than once"
            raise errors.InvalidArgument(field=methods.TARGET, problem=problem, value=target, expected="one value")
        settings[methods.TARGET] = target
    if settings or "method" in values or (base is None and method != methods.REWARD):
        methods.set_method(spec, method, settings)
    return spec


def make_training_spec(arguments: Mapping[str, Any], name: str) -> pb.SessionSpec:
    """Return the spec of one training on a reward.

    :param arguments: as for `make_spec`, with a reward.
    :param name: of the reward.
    """
    spec = make_spec({**arguments, "intent": f"train on {name}", "iterations": 1})
    spec.reward.train_only = True
    return spec


def _intent(text: str) -> str:
    text = text.strip()
    if not 0 < len(text) <= _MAX_INTENT:
        value = text if not text else f"{len(text)} characters"
        raise errors.InvalidArgument(field="intent", value=value, expected=f"1 to {_MAX_INTENT} characters of text")
    return text


def _environment(name: str) -> str:
    if not name:
        expected = "an environment, such as HalfCheetah-v5"
        raise errors.InvalidArgument(field="env", problem="missing", expected=expected)
    return name


def _refuse_reward_arguments(arguments: Sequence[Argument], values: dict[str, Any], method: str) -> None:
    """Refuse arguments that are settings of `reward`, for another method; those that are off are dropped."""
    for argument in arguments:
        if method == methods.REWARD or not argument.paths[0].startswith(_REWARD):
            continue
        if value := values.pop(argument.name, None):
            problem, remedy = (
                f"not an option of the method {method!r}",
                f"Give options of {method!r} as settings (--set).",
            )
            raise errors.InvalidArgument(field=argument.name, problem=problem, value=str(value), remedy=remedy)


def set_arguments(message: Message, arguments: Sequence[Argument], values: Mapping[str, Any]) -> None:
    """Set the fields of a request.

    :param arguments: of the request; those without a value leave their fields.
    :raises InvalidArgument: naming the argument.
    """
    for argument in arguments:
        if argument.name in values:
            _set_argument(message, argument, values[argument.name])


def _set_argument(message: Any, argument: Argument, value: Any) -> None:
    owner, field = _owner(message, argument.paths[0])
    for other in argument.paths[1:] if argument.kind != "roles" else ():  # the same argument, as another field
        owner.ClearField(other.rpartition(".")[2])
    match argument.kind:
        case "roles":
            _set_roles(message, argument.name, value)
        case "configs":
            _set_configs(owner, value)
        case "criteria":
            owner.ClearField(field)
            getattr(owner, field).extend(read_criteria(value) if isinstance(value, Path) else value)
        case "fields":
            remedy = "`dressage envs show ID` lists those of an environment." if argument.name == "env_options" else ""
            set_fields(getattr(owner, field), value, field=argument.name, remedy=remedy)
        case "minutes":
            _set_minutes(getattr(owner, field), value, argument.name)
        case _:
            if isinstance(value, Path):
                value = read_source(value, field=argument.name)
            set_value(owner, owner.DESCRIPTOR.fields_by_name[field], value, field=argument.name)
            if argument.choices and value not in argument.choices:
                expected = f"one of {', '.join(argument.choices)}"
                raise errors.InvalidArgument(field=argument.name, value=value, expected=expected)


def _set_minutes(duration: Duration, value: Any, name: str) -> None:
    try:
        duration.FromMilliseconds(round(60_000 * float(value)))
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.InvalidArgument(field=name, value=value, expected="a number of minutes") from error


def _owner(message: Any, path: str) -> tuple[Any, str]:
    """Return the message that has a field, and the name of the field."""
    *outer, name = path.split(".")
    for part in outer:
        message = getattr(message, part)
    return message, name


def _set_roles(spec: pb.SessionSpec, name: str, value: Any) -> None:
    """Set a field of the models of roles, and of the session. An endpoint without a role is the server's setting."""
    for role, text in by_role(name, value).items():
        if role:
            setattr(spec.roles[role], name, text)
        elif name in spec.DESCRIPTOR.fields_by_name:
            setattr(spec, name, text)


def _set_configs(reward: Any, configs: Mapping[str, Mapping[str, Any]]) -> None:
    del reward.configs[:]
    for identifier, values in configs.items():
        set_fields(reward.configs.add(id=identifier).hyperparameters, values, field=f"configs.{identifier}")
