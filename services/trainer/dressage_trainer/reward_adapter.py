"""What the trainer has to know of a generated reward's source. Only ever inside the learner's sandbox."""

from __future__ import annotations

import ast

from dressage.contracts.reward import RewardModule
from dressage.envs.cards import EnvironmentCard


def fields_read(source: str, module: RewardModule, card: EnvironmentCard) -> frozenset[str] | None:
    """Names of the state's fields that a reward can read, so that the simulator copies no others; None: all.

    The lint leaves attribute access as the only way to a field, so every name of a field that occurs as an attribute
    counts, whatever object it is an attribute of.
    """
    if module.style != "vectorised":
        return None
    attributes = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    if attributes & {"fields", "rows"}:
        return None
    return frozenset(attributes & {field.name for field in card.fields})
