"""The player: a sandboxed process that plays candidates on stock Gymnasium or, where an assignment asks for it, by the batched
engine. It never loads generated code, but for that of a registered language, whose player plays nothing else.

For that reason it may serve one assignment after another. It keeps its environments, so that a short episode costs little
more than its steps, and answers through its channel; only a rollout that is kept becomes a file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dressage.envs.options import EnvOptions
from dressage.envs.packs.registry import DAMAGED
from dressage.envs.reference import Outcome, StockPlayer
from dressage.episodes.choice import EpisodeEngine, episode_engine
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.policies import Policy, PolicyCard
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.pipe import Channel, ChannelClosed

from dressage_trainer.evaluation.lockstep import Lockstep
from dressage_trainer.messages import NO_ROOM

_ENVIRONMENTS_KEPT = 4
_ENGINES_KEPT = 4


class Environments:
    """The environments and engines used last, ready for the next episode."""

    def __init__(self) -> None:
        self._players: OrderedDict[tuple[str, str], StockPlayer] = OrderedDict()
        self._engines: OrderedDict[str, EpisodeEngine | None] = OrderedDict()

    def engine(self, request: Mapping[str, Any]) -> EpisodeEngine | None:
        """Return the engine of a request with ``batched`` and ``policy``; None: stock Gymnasium must play it.

        Where all episodes are recorded, stock Gymnasium plays them anyway.
        """
        if not request.get("batched") or "policy" not in request or request["recorded"] >= len(request["seeds"]):
            return None
        facts = [request[name] for name in ("environment", "options", "policy", "seeds")]
        key = repr(facts)
        if key not in self._engines:
            if len(self._engines) >= _ENGINES_KEPT:
                self._engines.popitem(last=False)
            environment, options, policy, seeds = facts
            spec = PolicySpec.from_dict(policy)
            self._engines[key] = episode_engine(environment, spec, seeds, EnvOptions(**options))
        self._engines.move_to_end(key)
        return self._engines[key]

    def get(self, environment: str, options: Mapping[str, Any]) -> StockPlayer:
        """Return the environment with these options, created when it is first used."""
        key = (environment, repr(sorted(options.items())))
        if key not in self._players:
            if len(self._players) >= _ENVIRONMENTS_KEPT:
                self._players.popitem(last=False)[1].close()
            self._players[key] = StockPlayer(environment, EnvOptions(**options))
        self._players.move_to_end(key)
        return self._players[key]


def play(channel: Channel) -> None:
    """Sandbox target: answer requests until the channel closes.

    A request has ``environment``, ``options``, ``seeds``, ``recorded`` (how many of the first seeds' rollouts are kept),
    ``folder`` (where to, relative to the scratch folder) and either ``policy`` and ``parameters`` or ``card`` and
    ``weights``; with ``batched`` the episodes of parameters are played by the batched engine. A reply has ``returns``,
    ``lengths``, ``successes`` (-1 where the environment gives none) and ``paths``; or ``refused``, why the policy cannot play;
    ``damaged``, why an environment of a pack cannot be made; or ``error``, the number of the system's error. A request with
    ``lockstep`` is one of `Lockstep.answer`, one with ``program`` one of `_play_program`.
    """
    environments, lockstep = Environments(), Lockstep()
    while True:
        try:
            request = channel.recv(timeout=None)
        except ChannelClosed:
            return
        try:
            reply = _reply(request, environments, lockstep)
        except InvalidArgument as error:
            reply = {"refused": error.message, "reason": error.reason}
        except FailedPrecondition as error:
            if error.reason != DAMAGED:
                raise
            reply = {"damaged": error.metadata["problem"]}
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            reply = {"error": error.errno}
        channel.send(reply)


def _reply(request: Mapping[str, Any], environments: Environments, lockstep: Lockstep) -> dict[str, Any]:
    if "program" in request:
        return _play_program(request)
    return lockstep.answer(request) if "lockstep" in request else answer(request, environments)


def answer(request: Mapping[str, Any], environments: Environments) -> dict[str, Any]:
    """Play all episodes of a request.

    :raises InvalidArgument: if the policy's output is no action of the environment.
    """
    engine = environments.engine(request)
    if engine is not None:
        return _play_batch(request, engine, environments)
    environment = environments.get(request["environment"], request["options"])
    act = policy_of(request).act
    outcomes: list[Outcome] = []
    paths: list[str] = []
    for index, seed in enumerate(request["seeds"]):
        if index < request["recorded"]:
            trajectory, outcome = environment.record(act, seed)
            path = Path(request["folder"]) / f"{index}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            trajectory.save(path)
            paths.append(str(path))
        else:
            outcome = environment.play(act, seed)
        outcomes.append(outcome)
    return {
        "returns": np.array([outcome.stock_return for outcome in outcomes], np.float64),
        "lengths": np.array([outcome.length for outcome in outcomes], np.int64),
        "successes": np.array([-1 if outcome.success is None else outcome.success for outcome in outcomes], np.int8),
        "paths": paths,
    }


def _play_batch(request: Mapping[str, Any], engine: EpisodeEngine, environments: Environments) -> dict[str, Any]:
    """Play all episodes at once; the rollouts to keep are recorded on stock Gymnasium."""
    played = engine.play(np.asarray(request["parameters"], np.float64)[None])
    paths: list[str] = []
    if request["recorded"]:
        recording_request = {**request, "batched": False, "seeds": request["seeds"][: request["recorded"]]}
        paths = answer(recording_request, environments)["paths"]
    unknown = np.full(len(request["seeds"]), -1, np.int8)
    return {"returns": played.returns[0], "lengths": played.lengths[0], "successes": unknown, "paths": paths}


def policy_of(request: Mapping[str, Any]) -> Policy:
    """Return the policy of a request: a bundle, or the numbers of a small one."""
    if "card" in request:
        return Policy(weights=request["weights"], card=PolicyCard.from_dict(request["card"]))
    spec = PolicySpec.from_dict(request["policy"])
    chosen = kind(spec.kind)
    card = chosen.card(spec, environment=request["environment"])
    return Policy(weights=chosen.weights(spec, request["parameters"]), card=card)


def _play_program(request: Mapping[str, Any]) -> dict[str, Any]:
    """Play a program from each initial state.

    :param request: ``environment``, ``profile``, ``program``, ``seeds`` (the states), ``recorded`` (how many of the first
        episodes become files), ``folder`` (where to, relative to the working folder) and ``trace``: a text of the episode with
        the lowest return, or empty.
    :returns: the reply of `answer`, with ``trace``.
    :raises InvalidArgument: for a program that the engine cannot run.
    """
    # The engine's compiler, which other candidates do not need.
    from dressage.programs.families import SOLVED, program_task
    from dressage.programs.trace_json import episode_json

    task = program_task(request["environment"], request["profile"])
    program, states = task.parse(request["program"]), request["seeds"]
    outcomes = task.play(program, states)
    returns = np.array([outcome.reward for outcome in outcomes], np.float64)
    paths: list[str] = []
    for index, state in enumerate(states[: request["recorded"]]):
        path = Path(request["folder"]) / f"{index}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            episode_json(task.environment, task.profile, state, program, task.trace(program, state)), "utf-8"
        )
        paths.append(str(path))
    return {
        "returns": returns,
        "lengths": np.array([outcome.steps for outcome in outcomes], np.int64),
        "successes": (returns >= SOLVED).astype(np.int8),
        "paths": paths,
        "trace": task.worst_episode(program, states, request["trace"]) if request["trace"] else "",
    }
