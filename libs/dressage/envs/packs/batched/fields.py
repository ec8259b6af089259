"""The fields of a batched simulator's environments: the simulator computes them, the card names them."""

from __future__ import annotations

from dressage.envs.cards import EnvironmentCard, Field
from dressage.envs.fields import BoundField
from dressage.envs.state import Array, Raw
from dressage.envs.vector import bound_fields as observed_fields

_OURS = ("observation", "time")


def bound_fields(card: EnvironmentCard) -> list[BoundField]:
    """Return the fields: those of the observation, and each other one as the array of its name."""
    return [*observed_fields(card), *(_bind(entry) for entry in card.fields if entry.name not in _OURS)]


def _bind(field: Field) -> BoundField:
    def read(raw: Raw) -> Array:
        return raw[field.name]

    return BoundField(field, read, (field.name,))
