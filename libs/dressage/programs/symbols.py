"""How pictures show the agent and what cells hold. Boxes are left, top, right, bottom in pixels."""

from __future__ import annotations

from typing import Any

Box = tuple[int, int, int, int]
Colour = tuple[int, int, int]

BACKGROUND: Colour = (246, 246, 243)
INK: Colour = (33, 37, 41)
MUTED: Colour = (150, 155, 160)
GRID_LINE: Colour = (219, 221, 222)
WALL: Colour = (84, 91, 100)
AGENT: Colour = (25, 103, 210)
MARKER: Colour = (240, 160, 32)
_LAVA, _LAVA_WAVE, _GOAL = (226, 82, 33), (255, 178, 102), (64, 170, 92)
_COLOURS: dict[str, Colour] = {
    "red": (211, 47, 47),
    "green": (56, 142, 60),
    "blue": (66, 115, 220),
    "purple": (142, 68, 173),
    "yellow": (233, 190, 25),
    "grey": (128, 128, 128),
}
_TURNS = {"north": 0, "up": 0, "east": 1, "right": 1, "south": 2, "down": 2, "west": 3, "left": 3}


def draw_agent(pen: Any, box: Box, heading: str, beneath: int, font: Any, carried: str = "") -> None:
    """Draw the agent as an arrow head, with the number of markers beneath it and what it carries."""
    left, top, right, bottom = box
    size = right - left
    middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
    shape = ((0.0, -0.38), (0.30, 0.32), (0.0, 0.16), (-0.30, 0.32))
    for _ in range(_TURNS[heading]):
        shape = tuple((-y, x) for x, y in shape)  # type: ignore[assignment]
    points = [(middle_x + x * size, middle_y + y * size) for x, y in shape]
    pen.polygon(points, fill=AGENT, outline=(10, 50, 120))
    if beneath:
        _badge(pen, box, str(beneath), font)
    if carried:
        third = size // 3
        draw_object(pen, (right - third - 2, top + 2, right - 2, top + 2 + third), carried)


def _badge(pen: Any, box: Box, text: str, font: Any) -> None:
    _, top, right, _ = box
    middle = (right - 9, top + 9)
    pen.ellipse((middle[0] - 7, middle[1] - 7, middle[0] + 7, middle[1] + 7), fill=MARKER)
    pen.text(middle, text, fill=(40, 25, 0), font=font, anchor="mm")


def draw_markers(pen: Any, box: Box, count: int, font: Any) -> None:
    """Draw a disc with the number of markers."""
    pen.ellipse(_inner(box, 0.22), fill=MARKER, outline=(176, 110, 10))
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    pen.text(middle, str(count), fill=(40, 25, 0), font=font, anchor="mm")


def draw_object(pen: Any, box: Box, name: str) -> None:
    """Draw an object by its name, such as ``red ball``, ``open blue door``, ``lava``, ``goal``."""
    words = name.split()
    colour = next((_COLOURS[word] for word in words if word in _COLOURS), INK)
    match words[-1]:
        case "lava":
            pen.rectangle(box, fill=_LAVA)
            _waves(pen, box)
        case "goal":
            pen.rectangle(_inner(box, 0.04), fill=_GOAL)
        case "ball":
            pen.ellipse(_inner(box, 0.2), fill=colour, outline=INK)
        case "box":
            inner = _inner(box, 0.18)
            pen.rectangle(inner, fill=_lighter(colour), outline=colour, width=max(2, (box[2] - box[0]) // 12))
            pen.line((inner[0], (inner[1] + inner[3]) / 2, inner[2], (inner[1] + inner[3]) / 2), fill=colour, width=2)
        case "door":
            _door(pen, box, colour, is_open="open" in words)
        case "wall":
            pen.rectangle(box, fill=WALL)


def _door(pen: Any, box: Box, colour: Colour, *, is_open: bool) -> None:
    size = box[2] - box[0]
    if is_open:
        pen.rectangle((box[0] + 1, box[1] + 1, box[2] - 1, box[1] + max(4, size // 6)), fill=colour)
        return
    pen.rectangle(_inner(box, 0.04), fill=colour)
    pen.rectangle(_inner(box, 0.14), fill=_lighter(colour), outline=colour)
    x, y, r = box[0] + 0.74 * size, box[1] + 0.5 * size, max(2, size // 14)
    pen.ellipse((x - r, y - r, x + r, y + r), fill=INK)


def _waves(pen: Any, box: Box) -> None:
    size = box[2] - box[0]
    for height in (0.3, 0.6):
        y = box[1] + height * size
        points = [
            (box[0] + share * size, y + (0.08 * size if i % 2 else -0.02 * size))
            for i, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9))
        ]
        pen.line(points, fill=_LAVA_WAVE, width=max(1, size // 16))


def _inner(box: Box, share: float) -> tuple[float, float, float, float]:
    edge = (box[2] - box[0]) * share
    return box[0] + edge, box[1] + edge, box[2] - edge, box[3] - edge


def _lighter(colour: Colour) -> Colour:
    red, green, blue = ((channel + 2 * 255) // 3 for channel in colour)
    return red, green, blue
