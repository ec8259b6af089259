"""What a cell of Minigrid holds, as a number: kind, colour in bits 3 to 5, and bit 6 for an open door."""

from __future__ import annotations

EMPTY, WALL, DOOR, BALL, BOX, GOAL, LAVA = range(7)
KINDS = ("empty", "wall", "door", "ball", "box", "goal", "lava")
KIND = 7
"""Bits of the kind."""

RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
COLOUR_SHIFT = 3
OPEN = 64
CONTENTS = 128
"""Numbers below this are cells."""


def cell(kind: int, colour: int = RED, *, is_open: bool = False) -> int:
    """Return the number of what a cell holds."""
    return kind | colour << COLOUR_SHIFT | (OPEN if is_open else 0)


def kind_of(number: int) -> str:
    """Return the kind, such as ``door``."""
    return KINDS[number & KIND]


def colour_of(number: int) -> str:
    """Return the colour, such as ``red``."""
    return COLOURS[number >> COLOUR_SHIFT & 7]


def name_of(number: int) -> str:
    """Return words for what a cell holds, such as ``red ball`` or ``open blue door``; empty for an empty cell."""
    kind = kind_of(number)
    if kind == "empty":
        return ""
    if kind in ("door", "ball", "box"):
        return f"{'open ' if number & OPEN else ''}{colour_of(number)} {kind}"
    return kind
