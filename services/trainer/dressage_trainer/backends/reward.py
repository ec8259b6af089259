"""Calls of a generated reward inside the learner: which fields of the state it reads, and that the supervisor sees each.

A trained policy reaches states that no check has seen, and in one of them a loop in the reward may never end. The learner
would hang for ever, so the monitor of its sandbox watches the calls (`dressage.sandbox.heartbeat`).
"""

from __future__ import annotations

import ast
from typing import Any

from dressage.contracts.reward import BatchReward, RewardModule, RewardOutput
from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State
from dressage.parsing import syntax_tree
from dressage.sandbox.heartbeat import heartbeat
from numpy.typing import NDArray


def fields_read(source: str, module: RewardModule, card: EnvironmentCard) -> frozenset[str] | None:
    """Return the fields of the state that a reward can read, so that the simulator copies no others; None: all.

    The lint permits attribute access as the only way to a field. So every field whose name occurs as an attribute counts,
    whatever the object.
    """
    if module.style != "vectorised":
        return None
    attributes = {node.attr for node in ast.walk(syntax_tree(source)) if isinstance(node, ast.Attribute)}
    if attributes & {"fields", "rows"}:
        return None
    return frozenset(attributes & {field.name for field in card.fields})


class WatchedReward(BatchReward):
    """A reward whose calls are watched."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._heartbeat = heartbeat()

    def __call__(self, state: State, action: NDArray[Any], next_state: State) -> RewardOutput:
        with self._heartbeat:
            return super().__call__(state, action, next_state)
