"""`dressage.run`, `dressage.train` and `dressage.result`: sessions from Python, as the command line runs them.

Without an address, a server that runs on the data folder is used, else the services start in this process, on an event loop in
a thread of their own, and stop when the function returns. The calling thread shows progress and calls back.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressage.api.v1 import event_pb2
from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client
from dressage.client.loop import LoopThread
from dressage.local.connection import Connection, ServerOptions, Start, connect, refuse_unusable
from dressage.sdk import preflight, progress, screen, texts
from dressage.sdk.argument_names import python_names
from dressage.sdk.arguments import (
    config_texts,
    environment_id,
    own_environments,
    pairs,
    preserved_logging,
    server_options,
)
from dressage.sdk.criteria import parse_criteria
from dressage.sdk.results import LearningCurve, Result, SearchSeries, collect, failure, new_download_folder, series
from dressage.sdk.reward_source import Reward, reward_name, reward_source, source_text
from dressage.sdk.specs import SpecOptions, make_spec, recorded

_CANCEL_SECONDS = 60.0

Folder = str | os.PathLike[str]
OnEvent = Callable[[event_pb2.Event], None]
"""Called in the calling thread with each event of the session (`Event` of the API)."""


def run(
    intent: str = "",
    env: str = "",
    *,
    model: str | Sequence[str] = "",
    api_base: str | Sequence[str] | None = None,
    thinking: str | Sequence[str] = "",
    provider_wait: float | None = None,
    method: str = "",
    target: float | None = None,
    settings: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    seed: int = 0,
    steps: int | None = None,
    iterations: int | None = None,
    threshold: float | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    backend: str = "",
    algorithm: str = "",
    pool: str = "",
    env_options: Mapping[str, Any] | None = None,
    reward: Reward | None = None,
    judge: Folder | None = None,
    criteria: Folder | Sequence[str | Mapping[str, Any]] | None = None,
    budget_dollars: float | None = None,
    budget_tokens: int | None = None,
    budget_steps: int | None = None,
    budget_minutes: float | None = None,
    variants: bool = False,
    tune: bool | None = None,
    early_stop: bool | None = None,
    patience: int | None = None,
    from_parent: str = "",
    checkpoint: str = "",
    approve: bool = False,
    video: str = "",
    video_options: Mapping[str, Any] | None = None,
    replay: Folder | None = None,
    detach: bool = False,
    quiet: bool = False,
    on_event: OnEvent | None = None,
    address: str | None = None,
    token: str | None = None,
    data_dir: Folder | None = None,
) -> Result:
    """Train a policy for a behaviour described in words, and wait for the result.

    Names and defaults are those of ``dressage run``; what is not given is the server's default. Model calls are not confirmed
    first: bound what they may cost with ``budget_dollars``. An interrupt (Ctrl-C) cancels a session whose services are in this
    process and leaves a server's session running; `KeyboardInterrupt` is raised in both cases.

    :param intent: the behaviour, in words; not with ``replay``.
    :param env: environment id, such as ``Hopper-v5``; not with ``replay``.
    :param model: language model as litellm names it; by default ``template/v1``, which is no language model. A list may
        have other models for single roles: ``["openai/gpt-4.1", "judge=anthropic/…", "video=gemini/…"]``.
    :param api_base: endpoint of the model's provider, where the services start in this process; for single roles as ``model``.
    :param thinking: reasoning effort, ``off`` or ``minimal`` to ``max``; for single roles as ``model``.
    :param provider_wait: minutes to wait for a provider that is down; by default 10.
    :param method: how policies are found; by default ``reward``.
    :param target: mean return from which a search method succeeds; by default that of the environment's card.
    :param settings: settings of the method, by field.
    :param seeds: seeds for each config, 1 to 100.
    :param seed: first training seed.
    :param steps: environment steps for each seed: at most, where judgments decide how long it trains.
    :param iterations: iterations at most, 1 to 1000.
    :param threshold: score that counts as achieved, 0.001 to 1.
    :param configs: hyperparameters to try as well, by id: ``{"fast": {"learning_rate": 1e-3, "hidden_sizes": (64, 64)}}``.
    :param backend: ``jax`` or ``sb3``.
    :param algorithm: ``ppo`` or ``sac`` (continuous actions only).
    :param pool: pool of trainers, on a cluster that has several.
    :param env_options: ``max_episode_steps``, ``terminate_when_unhealthy`` or ``reset_noise_scale``.
    :param reward: first reward instead of an author's: source text, a path, or a function or class of the contract.
    :param judge: judge instead of an author's: source text, or a path.
    :param criteria: file of ``dressage elicit --out``, or a list of titles or of objects with ``title`` and ``description``.
    :param budget_dollars: bound on the cost of model calls.
    :param budget_tokens: bound on the tokens of model calls.
    :param budget_steps: bound on the environment steps of all iterations.
    :param budget_minutes: bound on the wall-clock time.
    :param variants: whether to try a conservative and an aggressive config in addition to the base.
    :param tune: whether an author may change hyperparameters, networks and steps; by default with a language model.
    :param early_stop: whether judgments of checkpoints decide how long a training lasts: it ends once it passes or no longer
        improves, and continues while it improves; by default True for trainings of one config.
    :param patience: successive checkpoints without a rise after which a training ends; by default 2.
    :param from_parent: ``auto``, ``never`` or ``always``: whether an iteration continues from its parent's policies.
    :param checkpoint: ``last`` or ``best``: the checkpoint of each seed that is judged, confirmed and delivered.
    :param approve: whether to wait for an approval before each evaluation (``dressage sessions approve``).
    :param video: rollouts that a vision model looks at: ``deciding`` (the default), ``all`` or ``none``; ``only`` is
        ``deciding`` without a code judge.
    :param video_options: what it is shown: ``fps``, ``window_seconds``, ``votes``, ``motion_trail`` or ``camera``.
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
    with python_names(), own_environments(data_dir):
        base = _recorded(replay, intent=intent, env=env, model=model, method=method)
        options = SpecOptions(
            intent=intent,
            environment=environment_id(env) if base is None else "",
            environment_options=pairs(env_options),
            model=model,
            thinking=thinking,
            api_base=api_base or "",
            provider_wait=provider_wait,
            seeds=seeds or 0,
            seed=seed,
            steps=steps or 0,
            iterations=iterations or 0,
            threshold=threshold or 0.0,
            configs=config_texts(configs),
            backend=backend,
            algorithm=algorithm,
            pool=pool,
            reward=None if reward is None else reward_source(reward),
            judge=None if judge is None else source_text(judge, field="judge"),
            criteria=_criteria(criteria),
            budget_dollars=budget_dollars,
            budget_tokens=budget_tokens or 0,
            budget_steps=budget_steps or 0,
            budget_minutes=budget_minutes,
            variants=variants,
            tune=tune,
            early_stop=early_stop,
            patience=patience or 0,
            from_parent=from_parent,
            checkpoint=checkpoint,
            approve=approve,
            video=video,
            video_options=pairs(video_options),
            method=method,
            target=target,
            settings=pairs(settings),
        )
        recordings = None if replay is None else Path(replay).absolute().parent
        server = server_options(
            address=address, token=token, data_dir=data_dir, api_base=api_base, recordings=recordings
        )
        return _run(make_spec(options, base), server, detach=detach, quiet=quiet, on_event=on_event)


def train(
    reward: Reward,
    env: str,
    *,
    seeds: int | None = None,
    seed: int = 0,
    steps: int | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    backend: str = "",
    algorithm: str = "",
    pool: str = "",
    env_options: Mapping[str, Any] | None = None,
    detach: bool = False,
    quiet: bool = False,
    on_event: OnEvent | None = None,
    address: str | None = None,
    token: str | None = None,
    data_dir: Folder | None = None,
) -> Result:
    """Train on a reward: no author, no judge, one training.

    :param reward: source text, a path, or a function or class of the contract (docs/contracts.md).
    :param env: environment id, such as ``Hopper-v5``.

    The other arguments, errors and the behaviour on an interrupt are those of `run`.

    :raises SessionFailed: if the training failed, for example because the reward did not pass its check.
    """
    with python_names(), own_environments(data_dir):
        source = reward_source(reward)
        options = SpecOptions(
            intent=f"train on {reward_name(reward)}",
            environment=environment_id(env),
            environment_options=pairs(env_options),
            seeds=seeds or 0,
            seed=seed,
            steps=steps or 0,
            iterations=1,
            configs=config_texts(configs),
            backend=backend,
            algorithm=algorithm,
            pool=pool,
            reward=source,
            train_only=True,
        )
        server = server_options(address=address, token=token, data_dir=data_dir)
        return _run(make_spec(options), server, detach=detach, quiet=quiet, on_event=on_event)


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
    with python_names(), own_environments(data_dir), _opened(server, start="own" if wait else "records") as place:
        if wait:
            _follow(place, session, quiet=quiet, on_event=on_event)
        return _result(place, session)


@dataclass(frozen=True)
class _Place:
    """A server, and how blocking code reaches it."""

    client: Client
    connection: Connection
    loop: LoopThread


def _recorded(
    replay: Folder | None, *, intent: str, env: str, model: str | Sequence[str], method: str
) -> pb.SessionSpec | None:
    if replay is None:
        return None
    return recorded(Path(replay), intent=intent, environment=env, model=model, method=method)


def _criteria(given: Folder | Sequence[str | Mapping[str, Any]] | None) -> Path | Sequence[pb.IntentCriterion] | None:
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        return Path(given)
    return parse_criteria([{"title": entry} if isinstance(entry, str) else dict(entry) for entry in given])


def _run(spec: pb.SessionSpec, server: ServerOptions, *, detach: bool, quiet: bool, on_event: OnEvent | None) -> Result:
    with _opened(server, start="own") as place:
        refuse_unusable(server, place.connection, detach=detach)
        place.loop.run(preflight.check(spec, place.connection))
        session = place.client.create_session(spec)
        if not detach:
            _follow(place, session.name, quiet=quiet, on_event=on_event)
        return _result(place, session.name)


@contextmanager
def _opened(server: ServerOptions, *, start: Start) -> Iterator[_Place]:
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
        with nullcontext(_nothing) if quiet else screen.opened(view) as update:
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
    return collect(session, place.client, place.connection, _curve(place, session))


def _curve(place: _Place, session: pb.Session) -> LearningCurve | None:
    if not session.best_policy:
        return None
    from dressage.sdk import curves, search_curves
    from dressage.sdk.curve_file import CURVE_FILE

    policy = place.connection.local_path(session.best_policy)
    folder = policy.parent if policy is not None else new_download_folder()
    if progress.is_search(session):
        points = place.loop.run(search_curves.load_points(session, place.connection))
        picture = search_curves.draw_to(points, folder / CURVE_FILE, session)
        return LearningCurve(training={}, evaluation={}, picture=picture.path, search=SearchSeries.of(points))
    loaded = place.loop.run(curves.load_curves(session, place.connection))
    if loaded is None:
        return None
    picture = curves.draw_to(loaded, folder / CURVE_FILE, session)
    return LearningCurve(
        training=series({config: returns.training for config, returns in loaded.items()}),
        evaluation=series({config: returns.evaluation for config, returns in loaded.items()}),
        picture=picture.path,
    )
