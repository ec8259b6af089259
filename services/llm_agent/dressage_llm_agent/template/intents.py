"""What an intent means once it is parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["move", "stand", "jump", "balance"]
Gait = Literal["run", "walk", "hop", "move", ""]


@dataclass(frozen=True)
class ParsedIntent:
    """A behaviour with its qualities.

    :param gait: how it moves, for kind ``move``; empty otherwise.
    :param direction: +1 along positive x, -1 along negative x, 0 for behaviours in place.
    :param qualities: names from `vocabulary.QUALITIES`.
    :param speed: target speed in m/s where the text names one, else None.
    """

    environment: str
    kind: Kind
    gait: Gait = ""
    direction: int = 0
    qualities: frozenset[str] = frozenset()
    speed: float | None = None

    @property
    def behaviour(self) -> str:
        """The behaviour in one or two words: ``run forward``, ``move backward``, ``stand``."""
        if self.kind != "move":
            return self.kind
        return f"{self.gait} {'forward' if self.direction > 0 else 'backward'}"
