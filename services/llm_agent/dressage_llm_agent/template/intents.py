"""The parsed form of an intent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dressage_llm_agent.template.abilities import ABILITIES

Kind = Literal["move", "stand", "rise", "sit", "jump", "flip", "spin", "reach", "push", "balance"]
Gait = Literal["run", "walk", "hop", "crawl", "swim", "move", ""]
Direction = Literal["forward", "backward", "left", "right", ""]

_PHRASES: dict[Kind, str] = {"rise": "stand up", "sit": "sit up", "push": "push the object to the target"}


@dataclass(frozen=True)
class ParsedIntent:
    """A behaviour with its qualities.

    :param gait: how it moves, for kind ``move``; empty otherwise.
    :param direction: direction of motion, of a flip or of a spin (left is counterclockwise, seen from above); empty for
        behaviours without one.
    :param qualities: names from `vocabulary.QUALITIES`.
    :param speed: target speed in m/s if the text contains one, else None.
    """

    environment: str
    kind: Kind
    gait: Gait = ""
    direction: Direction = ""
    qualities: frozenset[str] = frozenset()
    speed: float | None = None

    @property
    def behaviour(self) -> str:
        """The behaviour in one or two words: ``run forward``, ``flip backward``, ``spin``, ``stand``."""
        return f"{self.gait if self.kind == 'move' else self.kind} {self.direction}".strip()

    @property
    def words(self) -> str:
        """The behaviour as a phrase, which the parser accepts."""
        if self.kind == "reach":
            return "reach the object" if "push" in ABILITIES[self.environment].behaviours else "reach the target"
        return _PHRASES.get(self.kind, self.behaviour)

    @property
    def axis(self) -> str:
        """The axis of motion, ``x`` or ``y``."""
        return "y" if self.direction in ("left", "right") else "x"

    @property
    def sign(self) -> int:
        """+1 along the positive axis (forward, left, counterclockwise), -1 against it."""
        return -1 if self.direction in ("backward", "right") else 1

    @property
    def low(self) -> bool:
        """Whether the torso has to stay low; crawling implies it."""
        return self.gait == "crawl" or "low" in self.qualities
