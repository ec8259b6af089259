"""A vectorised reward as a pure function of JAX arrays, for pools of devices, and the check that it is one.

On a device, collection is one compiled function of all its steps, so a reward must be *traceable*: JAX calls it once with
abstract arrays, which have a shape but no values. Code that looks at a value (``if``, ``float``, an index by a condition)
works on concrete JAX arrays and fails here. Call this inside a sandbox only: it runs generated code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dressage.contracts import namespace
from dressage.contracts.failures import CheckFailure, RewardError
from dressage.contracts.memory import Memory
from dressage.contracts.reward import RewardModule, call_vectorised
from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State

RULE = "traceable"
_ROWS = 37
"""Rows of the abstract batch: a prime, so that no shape of a field equals it."""
_CONSEQUENCE = "so it trains on the CPU pool"
_PER_STEP = (
    f"a per-step reward runs in Python for one environment after another and cannot be compiled for a device, {_CONSEQUENCE}. "
    "Write it as reward(state, action, next_state, memory, np) for all environments at once."
)
_REMEDIES = {
    "TracerBoolConversionError": "values of arrays decide an if, while, and, or, not, min or max; use np.where",
    "TracerIntegerConversionError": "a value of an array is used as an index or a count; use np.take_along_axis or np.where",
    "TracerArrayConversionError": "an array is converted to a number or to another library's array; use functions of np",
    "ConcretizationTypeError": "a value of an array is read as a number; use array operations",
    "NonConcreteBooleanIndexError": "an array is indexed by a condition; use np.where",
}
"""By the error that JAX raises."""


class DeviceReward:
    """A vectorised reward of N environments, with its memory as an argument and a result.

    :param module: from `load_reward`.
    :param num_envs: N.
    :raises RewardError: for a per-step reward (rule ``traceable``).
    """

    def __init__(self, module: RewardModule, num_envs: int) -> None:
        if module.style != "vectorised":
            raise RewardError(RULE, _PER_STEP, line=module.line)
        self._module, self._shape = module, (num_envs,)
        self._np = namespace.array_namespace("jax")
        self.terms = tuple(module.terms)

    def init(self, dtype: Any = np.float32) -> dict[str, Any]:
        """Return the memory (N,) at the start of an episode, by name."""
        return {name: self._np.full(self._shape, value, dtype) for name, value in self._module.memory.items()}

    def restart(self, memory: Mapping[str, Any], done: Any) -> dict[str, Any]:
        """Return the memory with that of the start where ``done`` (N,) is true."""
        initial = self._module.memory
        return {name: self._np.where(done, initial[name], array) for name, array in memory.items()}

    def __call__(
        self, memory: Mapping[str, Any], state: State, action: Any, next_state: State
    ) -> tuple[dict[str, Any], Any]:
        """Return the memory after a step, and the terms (K, N), whose sum over K is the reward.

        :raises RewardError: the code raised, or its output has wrong terms, shape or dtype.
        """
        call_memory = Memory(self._module.memory, self._shape[0])
        call_memory._hold(memory)
        values = call_vectorised(self._module, self._shape, state, action, next_state, call_memory, self._np)
        # The memory of a compiled loop has a fixed type; numpy's becomes floating point at the next reset.
        after = {name: self._np.asarray(array, memory[name].dtype) for name, array in call_memory._arrays().items()}
        return after, self._np.stack(values)


def trace_reward(module: RewardModule, card: EnvironmentCard) -> CheckFailure | None:
    """Return why a reward that passed its check is not traceable, with the line at fault; None if it is.

    :raises ImportError: JAX is not installed.
    """
    try:
        reward = DeviceReward(module, _ROWS)  # a per-step reward is recognised without JAX
    except RewardError as error:
        return error.failure
    import jax

    struct: Any = jax.ShapeDtypeStruct  # untyped

    def abstract(*shape: int, dtype: Any = np.float32) -> Any:
        return struct((_ROWS, *shape), dtype)

    try:
        fields = {field.name: abstract(*field.shape) for field in card.fields}
        action = abstract(*card.action_shape, dtype=np.int32 if card.num_actions else np.float32)

        def step(memory: Any, before: Any, action: Any, after: Any) -> Any:
            return reward(memory, State(before), action, State(after))

        jax.eval_shape(step, dict.fromkeys(module.memory, abstract()), fields, action, fields)
    except RewardError as error:
        return _not_traceable(error, module)
    return None


def _not_traceable(error: RewardError, module: RewardModule) -> CheckFailure:
    cause = type(error.__cause__).__name__
    remedy = _REMEDIES.get(cause, error.failure.message.removesuffix("."))
    message = f"the reward cannot be compiled for a device, {_CONSEQUENCE}: {remedy}."
    return CheckFailure(RULE, error.line or module.line, message, error.seen.partition("\n")[0])
