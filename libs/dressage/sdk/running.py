"""`dressage.run`, `dressage.train` and `dressage.result`: sessions from Python, as the command line runs them.

Without an address, a server that runs on the data folder is used, else the services start in this process, on an event loop in
a thread of their own, and stop when the function returns. The calling thread shows progress and calls back.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dressage.api.arguments import SESSION
from dressage.api.v1 import event_pb2
from dressage.api.v1 import session_pb2 as pb
from dressage.argument import Argument
from dressage.client import Client
from dressage.client.loop import LoopThread
from dressage.local.connection import Connection, ServerOptions, Start, connect, refuse_unusable
from dressage.sdk import preflight, progress, screen, texts
from dressage.sdk.argument_names import python_names
from dressage.sdk.arguments import environment_id, own_environments, preserved_logging, server_options
from dressage.sdk.files import parse_criteria
from dressage.sdk.results import Result, collect, failure, new_download_folder
from dressage.sdk.reward_source import Reward, reward_name, reward_source, source_text
from dressage.sdk.scores import CURVE_FILE
from dressage.sdk.specs import make_spec, make_training_spec, replay_spec

if TYPE_CHECKING:
    from typing import Unpack

    from dressage.api.arguments import RunSettings, TrainSettings

_CANCEL_SECONDS = 60.0

Folder = str | os.PathLike[str]
OnEvent = Callable[[event_pb2.Event], None]
"""Called in the calling thread with each event of the session (`Event` of the API)."""
F = TypeVar("F", bound=Callable[..., Any])

_RUN = [argument for argument in SESSION if argument.name not in ("intent", "env")]
_TRAIN = [argument for argument in _RUN if argument.train]


def _document(arguments: Sequence[Argument]) -> Callable[[F], F]:
    """Show the arguments of a session in the signature and the docstring of a function that takes them as keywords."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        keywords = [inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None) for each in arguments]
        parameters = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*parameters, *keywords])  # type: ignore[attr-defined]
        lines = "\n    ".join(f":param {each.name}: {each.description}" for each in arguments)
        function.__doc__ = (function.__doc__ or "").replace(":raises", f"{lines}\n    :raises", 1)
        return function

    return decorate


def _refuse_unknown(function: str, settings: Mapping[str, Any], arguments: Sequence[Argument]) -> None:
    for name in settings.keys() - {each.name for each in arguments}:
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


@_document(_RUN)
def run(
    intent: str = "",
    env: str = "",
    *,
    replay: Folder | None = None,
    detach: bool = False,
    quiet: bool = False,
    on_event: OnEvent | None = None,
    address: str | None = None,
    token: str | None = None,
    data_dir: Folder | None = None,
    **settings: Unpack[RunSettings],
) -> Result:
    """Train a policy for a behaviour described in words, and wait for the result.

    Settings are those of ``dressage run``, with the server's defaults in brackets. What the command line repeats is a mapping:
    ``env_options={"max_episode_steps": 500}``, ``configs={"fast": {"learning_rate": 1e-3}}``,
    ``settings={"FIELD": value}``. Model calls are not confirmed first: bound what they may cost with ``budget_dollars``. An
    interrupt (Ctrl-C) cancels a session whose services are in this process and leaves a server's session running;
    `KeyboardInterrupt` is raised in both cases.

    :param intent: the behaviour, in words; not with ``replay``.
    :param env: environment id, such as ``Hopper-v5``; not with ``replay``.
    :param replay: folder of a recorded session, whose replies are trained and judged anew.
    :param detach: return when the session has begun; needs a running server. `result` returns the result later.
    :param quiet: show nothing.
    :param on_event: called with each event, in this thread.
    :param address: server; by default ``$DRESSAGE_ADDRESS``, else a server of the data folder or the services in this process.
    :param token: bearer token for the server; by default ``$DRESSAGE_TOKEN``.
    :param data_dir: data folder of this machine; by default ``$DRESSAGE_HOME``, else the platform's folder.
    :raises InvalidArgument: for a wrong argument, naming it.
    :raises NotFound: for an unknown environment.
    :raises SessionFailed: if the session failed.
    :raises FailedPrecondition: if a package is missing, or another process is using the data folder.
    """
    _refuse_unknown("run", settings, _RUN)
    with python_names(), own_environments(data_dir):
        arguments = _sources({"intent": intent, "env": env, **settings})
        base = None if replay is None else replay_spec(Path(replay), arguments)
        if base is None:
            arguments["env"] = environment_id(env)
        server = server_options(
            address=address,
            token=token,
            data_dir=data_dir,
            api_base=settings.get("api_base"),
            recordings=None if replay is None else Path(replay).absolute().parent,
        )
        return _run(make_spec(arguments, base), server, detach=detach, quiet=quiet, on_event=on_event)


@_document(_TRAIN)
def train(
    reward: Reward,
    env: str,
    *,
    detach: bool = False,
    quiet: bool = False,
    on_event: OnEvent | None = None,
    address: str | None = None,
    token: str | None = None,
    data_dir: Folder | None = None,
    **settings: Unpack[TrainSettings],
) -> Result:
    """Train on a reward: no author, no judge, one training.

    The arguments that are not described here, errors and the behaviour on an interrupt are those of `run`.

    :param reward: source text, a path, or a function or class of the contract (docs/contracts.md).
    :param env: environment id, such as ``Hopper-v5``.
    :raises SessionFailed: if the training failed, for example because the reward did not pass its check.
    """
    _refuse_unknown("train", settings, _TRAIN)
    with python_names(), own_environments(data_dir):
        arguments = {**settings, "reward": reward_source(reward), "env": environment_id(env)}
        server = server_options(address=address, token=token, data_dir=data_dir)
        spec = make_training_spec(arguments, reward_name(reward))
        return _run(spec, server, detach=detach, quiet=quiet, on_event=on_event)


def _sources(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the text of sources, and the messages of criteria."""
    if (reward := arguments.get("reward")) is not None:
        arguments["reward"] = reward_source(reward)
    if (judge := arguments.get("judge")) is not None:
        arguments["judge"] = source_text(judge, field="judge")
    criteria = arguments.get("criteria")
    if isinstance(criteria, str | os.PathLike):
        arguments["criteria"] = Path(criteria)
    elif criteria is not None:
        arguments["criteria"] = parse_criteria([{"title": e} if isinstance(e, str) else dict(e) for e in criteria])
    return arguments


def result(
    session: str,
    *,
    wait: bool = False,
    quiet: bool = False,
    on_event: OnEvent | None = None,
    address: str | None = None,
    token: str | None = None,
    data_dir: Folder | None = None,
) -> Result:
    """Return the result of a session of a server, or of the data folder.

    :param session: id of a session, or ``sessions/ID``.
    :param wait: whether to follow a session that has not ended until it ends, as `run` does.
    :raises NotFound: if there is no such session.
    :raises SessionFailed: if the session failed.
    """
    server = server_options(address=address, token=token, data_dir=data_dir)
    with python_names(), own_environments(data_dir), _connect(server, start="own" if wait else "records") as place:
        if wait:
            _follow(place, session, quiet=quiet, on_event=on_event)
        return _result(place, session)


@dataclass(frozen=True)
class _Place:
    """A server, and how blocking code reaches it."""

    client: Client
    connection: Connection
    loop: LoopThread


def _run(spec: pb.SessionSpec, server: ServerOptions, *, detach: bool, quiet: bool, on_event: OnEvent | None) -> Result:
    with _connect(server, start="own") as place:
        refuse_unusable(server, place.connection, detach=detach)
        place.loop.run(preflight.check(spec, place.connection))
        session = place.client.create_session(spec)
        if not detach:
            _follow(place, session.name, quiet=quiet, on_event=on_event)
        return _result(place, session.name)


@contextmanager
def _connect(server: ServerOptions, *, start: Start) -> Iterator[_Place]:
    loop = LoopThread()
    try:
        with preserved_logging():
            manager = connect(server, start=start)
            connection = loop.run(manager.__aenter__())
            try:
                yield _Place(Client(loop, connection.client), connection, loop)
            finally:
                loop.run(manager.__aexit__(None, None, None))
    finally:
        loop.stop()


def _follow(place: _Place, session: str, *, quiet: bool, on_event: OnEvent | None) -> None:
    """Show a session until it ends."""
    view = screen.first_view(place.client.get_session(session), flags=place.connection.flags)
    try:
        with nullcontext(_nothing) if quiet else screen.display(view) as update:
            for response in place.client.watch_session(session):
                view = progress.after(view, response)
                update(view, response.event)
                if on_event is not None and response.HasField("event"):
                    on_event(response.event)
    except KeyboardInterrupt:
        _interrupt(place, view.session)
        raise


def _nothing(view: progress.View, event: event_pb2.Event) -> None:
    """Shows nothing."""


def _interrupt(place: _Place, session: str) -> None:
    """Cancel a session that no other process would continue."""
    if place.connection.kind != "stack":
        name, flags = texts.short(session), place.connection.flags
        _print(f"{session} continues at {place.client.address}; cancel it with: dressage sessions cancel {name}{flags}")
        return
    _print(f"cancelling {session}; a second interrupt leaves at once")
    place.client.cancel_session(session, reason="cancelled by Ctrl-C")
    try:
        place.loop.run(asyncio.wait_for(place.connection.client.wait_session(session), _CANCEL_SECONDS))
    except TimeoutError:
        _print(f"{session} has not ended within {_CANCEL_SECONDS:.0f} s")


def _print(text: str) -> None:
    print(f"dressage: {text}", file=sys.stderr, flush=True)


def _result(place: _Place, name: str) -> Result:
    """The result of a session as it is now.

    :raises SessionFailed: if it failed.
    """
    session = place.client.get_session(name)
    if session.state == pb.SESSION_STATE_FAILED:
        raise failure(session)
    from dressage.sdk.curve_pictures import learning_curve

    connection = place.connection
    # A server's picture goes to a temporary folder, because a program's current folder is not for its pictures.
    local = connection.local_path(session.best_policy) is not None
    path = None if local else new_download_folder() / CURVE_FILE
    curve = place.loop.run(learning_curve(session, connection, path=path))
    return place.loop.run(collect(session, connection, curve))
