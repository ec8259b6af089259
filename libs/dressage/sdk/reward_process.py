"""The sandboxed side of `dressage.make_env`: it evaluates a reward step by step. Only ever inside a sandbox.

The first message holds the source, the card and the names of the fields that are sent. Then each message holds a state, as one
vector of these fields: with an action it is the state after a step, without one the state that an episode starts from. The
answer to a step is its terms, in the order of the first answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.failures import GeneratedCodeError
from dressage.envs.cards import EnvironmentCard
from dressage.sandbox.pipe import Channel, ChannelClosed

_START_SECONDS = 60.0


def serve(channel: Channel) -> None:
    """Sandbox target: evaluate the reward of the first message until the other side closes the channel."""
    request = channel.recv(timeout=_START_SECONDS)
    try:
        steps = _Steps(request)
        channel.send({"terms": dict(steps.terms), "latex": steps.latex})
        while True:
            try:
                message = channel.recv(timeout=None)
            except ChannelClosed:
                return
            if message["action"] is None:
                steps.start(message["state"])
            else:
                total, terms = steps.step(message["action"], message["state"])
                channel.send({"total": total, "values": terms})
    except GeneratedCodeError as error:
        channel.send({"failure": error.failure.to_dict(), "term": error.term})


class _Steps:
    """One environment's reward and the state that its next step starts from."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        from dressage.contracts.reward import BatchReward, load_reward
        from dressage.envs.state import State

        card = EnvironmentCard.from_dict(request["card"])
        module = load_reward(request["source"], card)
        self.terms, self.latex = module.terms, module.latex
        self._reward = BatchReward(module, card, 1)
        self._state = State
        self._before: Any = None
        self._places: dict[str, tuple[slice, tuple[int, ...]]] = {}
        offset = 0
        for name in request["fields"]:
            shape = card.field(name).shape
            size = int(np.prod(shape, dtype=int))
            self._places[name] = slice(offset, offset + size), (1, *shape)
            offset += size

    def start(self, state: NDArray[Any]) -> None:
        self._reward.reset()
        self._before = self._fields(state)

    def step(self, action: NDArray[Any], state: NDArray[Any]) -> tuple[float, list[float]]:
        after = self._fields(state)
        output = self._reward(self._before, action, after)
        self._before = after
        return float(output.total[0]), [float(values[0]) for values in output.terms.values()]

    def _fields(self, vector: NDArray[Any]) -> Any:
        return self._state({name: vector[part].reshape(shape) for name, (part, shape) in self._places.items()})
