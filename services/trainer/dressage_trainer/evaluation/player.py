"""The player: a sandboxed process that plays candidates on stock Gymnasium. It never loads generated code.

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
from dressage.envs.reference import Outcome, StockPlayer
from dressage.errors import InvalidArgument
from dressage.policies import Policy, PolicyCard
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.pipe import Channel, ChannelClosed

from dressage_trainer.messages import NO_ROOM

_ENVIRONMENTS_KEPT = 4


class Environments:
    """The environments used last, ready for the next episode."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], StockPlayer] = OrderedDict()

    def get(self, environment: str, options: Mapping[str, Any]) -> StockPlayer:
        """Return the environment with these options, created when it is first used."""
        key = (environment, repr(sorted(options.items())))
        if key not in self._kept:
            if len(self._kept) >= _ENVIRONMENTS_KEPT:
                self._kept.popitem(last=False)[1].close()
            self._kept[key] = StockPlayer(environment, EnvOptions(**options))
        self._kept.move_to_end(key)
        return self._kept[key]


def play(channel: Channel) -> None:
    """Sandbox target: answer requests until the channel closes.

    A request has ``environment``, ``options``, ``seeds``, ``recorded`` (how many of the first seeds' rollouts are kept),
    ``folder`` (where to, relative to the scratch folder) and either ``policy`` and ``parameters`` or ``card`` and
    ``weights``. A reply has ``returns``, ``lengths``, ``successes`` (-1 where the environment gives none) and ``paths``;
    or ``refused``, why the policy cannot play; or ``error``, the number of the system's error.
    """
    environments = Environments()
    while True:
        try:
            request = channel.recv(timeout=None)
        except ChannelClosed:
            return
        try:
            reply = answer(request, environments)
        except InvalidArgument as error:
            reply = {"refused": error.message}
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            reply = {"error": error.errno}
        channel.send(reply)


def answer(request: Mapping[str, Any], environments: Environments) -> dict[str, Any]:
    """Play all episodes of a request.

    :raises InvalidArgument: if the policy's output is no action of the environment.
    """
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


def policy_of(request: Mapping[str, Any]) -> Policy:
    """Return the policy of a request: a bundle, or the numbers of a small one."""
    if "card" in request:
        return Policy(weights=request["weights"], card=PolicyCard.from_dict(request["card"]))
    spec = PolicySpec.from_dict(request["policy"])
    chosen = kind(spec.kind)
    card = chosen.card(spec, environment=request["environment"])
    return Policy(weights=chosen.weights(spec, request["parameters"]), card=card)
