"""`PackBatch`: N environments of a pack, stepped by a process that the supervisor has started for the learner.

The simulator's whole state cannot be read. A snapshot holds where the random streams begin next, and a restored batch begins
new episodes: a resumed training continues with the same policy, not with the same episodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.envs.packs.batched.fields import bound_fields
from dressage.envs.packs.batched.link import Link
from dressage.envs.protocol import BatchStep, check_snapshot, environment_bytes
from dressage.envs.state import Array, State
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument, Unavailable

_START_SECONDS = 900.0
"""Without compiled kernels the first step takes minutes."""
_STEP_SECONDS = 600.0


class PackBatch:
    """Environments of a batched simulator in a process of its pack, as a `BatchEnv`.

    :param channel: to a process that runs `dressage.envs.packs.batched.stepping.serve`.
    :raises Unavailable: if the simulator's process ends, does not answer, or answers in another form.
    """

    def __init__(
        self,
        card: EnvironmentCard,
        num_envs: int,
        *,
        options: EnvOptions,
        fields: Collection[str] | None,
        channel: Link,
    ) -> None:
        self.card, self.num_envs = card, num_envs
        self.observation_size, self.action_size = card.observation_size, card.action_size
        self.action_kind, self.num_actions = card.action_kind, card.num_actions
        self.action_low = np.array([part.low for part in card.action], dtype=np.float32)
        self.action_high = np.array([part.high for part in card.action], dtype=np.float32)
        self.divergences = 0
        self._channel = channel
        bound = bound_fields(card)
        self._shapes = {entry.field.name: entry.field.shape for entry in bound if entry.sources == (entry.field.name,)}
        self._functions = {
            entry.field.name: entry.function for entry in bound if fields is None or entry.field.name in fields
        }
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._state: State | None = None
        self._stream = np.random.SeedSequence(0)
        request = {
            "environment": card.id,
            "num_envs": num_envs,
            "max_episode_steps": options.max_episode_steps or card.max_episode_steps,
        }
        answer = self._ask(request, seconds=_START_SECONDS)
        if sorted(map(str, answer.get("fields", []))) != sorted(self._shapes):
            raise self._wrong("other fields than the card")

    def reset(self, seeds: Sequence[int]) -> Array:
        """Restart all environments. The simulator has one random stream, which follows from all seeds together."""
        if len(seeds) != self.num_envs:
            expected = f"{self.num_envs} seeds, one per environment"
            raise InvalidArgument(field="seeds", value=len(seeds), expected=expected)
        self._stream = np.random.SeedSequence([int(seed) for seed in seeds])
        return self._begin()

    def _begin(self) -> Array:
        seed = int(self._stream.generate_state(1)[0] % 2**31)
        reply = self._ask({"do": "reset", "seed": seed}, seconds=_START_SECONDS)
        self._elapsed[:] = 0
        observation = self._observation(reply, "observation")
        self._state = self._make_state(observation, self._fields(reply, "fields"))
        return observation

    def state(self) -> State:
        if self._state is None:
            raise FailedPrecondition("the batch has no state yet: call reset(seeds) or restore(snapshot) first")
        return self._state

    def step(self, actions: Array) -> BatchStep:
        before = self.state()
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs, self.action_size) or actions.dtype.kind not in "fiu":
            expected = f"numbers of shape ({self.num_envs}, {self.action_size})"
            raise InvalidArgument(field="actions", value=f"{actions.dtype} {actions.shape}", expected=expected)
        reply = self._ask({"do": "step", "actions": np.asarray(actions, np.float64)}, seconds=_STEP_SECONDS)
        reward, faulty = self._array(reply, "reward", (), "f"), self._array(reply, "faulty", (), "b")
        terminated, truncated = (self._array(reply, name, (), "b") for name in ("terminated", "truncated"))
        self.divergences += int(faulty.sum())
        self._elapsed += 1
        final = self._observation(reply, "final_observation")
        next_state = self._make_state(final, self._fields(reply, "final_fields"))
        self._elapsed[terminated | truncated] = 0
        observation = self._observation(reply, "observation")
        self._state = self._make_state(observation, self._fields(reply, "fields"))
        return BatchStep(observation.copy(), final.copy(), reward, terminated, truncated, before, next_state)

    def snapshot(self) -> dict[str, Array]:
        self.state()
        return {
            "environment": environment_bytes(self.card.id),
            "stream": np.array(self._stream.generate_state(4)),
            "divergences": np.array(self.divergences, dtype=np.int64),
        }

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Begin new episodes, from a random stream that follows from the snapshot's."""
        check_snapshot(snapshot, self.card.id, {"stream": (4,), "divergences": ()})
        self._stream = np.random.SeedSequence([int(part) for part in snapshot["stream"]])
        self.divergences = int(snapshot["divergences"])
        self._begin()

    def _make_state(self, observation: Array, fields: Mapping[str, Array]) -> State:
        raw = {"observed": observation, "steps": self._elapsed.astype(np.float64), **fields}
        return State(raw=raw, functions=self._functions)

    def _ask(self, request: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        try:
            self._channel.send(request, timeout=seconds)
            return self._channel.recv(timeout=seconds)
        except DressageError as error:
            message = f"{self.card.id}: the simulator of its environment pack {self.card.pack} failed: {error.message}"
            raise Unavailable(message, reason="SIMULATOR_FAILED") from error

    def _observation(self, reply: Mapping[str, Any], name: str) -> Array:
        return self._array(reply, name, (self.observation_size,), "f")

    def _fields(self, reply: Mapping[str, Any], name: str) -> dict[str, Array]:
        try:
            return {field: self._array(reply[name], field, shape, "f") for field, shape in self._shapes.items()}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._wrong(name) from error

    def _array(self, reply: Mapping[str, Any], name: str, shape: tuple[int, ...], kind: str) -> Array:
        """Return an array (N, *shape) of the reply, checked: the simulator's process is not trusted."""
        value = reply.get(name)
        if not isinstance(value, np.ndarray) or value.shape != (self.num_envs, *shape) or value.dtype.kind != kind:
            raise self._wrong(name)
        if kind == "f" and not np.isfinite(value).all():
            raise self._wrong(f"{name}, which is not finite")
        return np.array(value)

    def _wrong(self, what: str) -> Unavailable:
        message = (
            f"{self.card.id}: the simulator of its environment pack {self.card.pack} sent a malformed reply ({what})"
        )
        return Unavailable(message, reason="SIMULATOR_FAILED")
