"""Pictures of a program's run: the grid next to the program, with the executing line highlighted. Pillow is imported on use.

A run has one frame for the beginning, one for each perception and action, and one for the end.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.programs.symbols import BACKGROUND, GRID_LINE, INK, MUTED, WALL, draw_agent, draw_markers, draw_object
from dressage.programs.trace import Agent, Contents, Step, Trace

if TYPE_CHECKING:
    from PIL import Image

MAX_FRAMES = 600
"""Frames of a run unless the caller allows more; the last one is always the end."""
_CELL, _SMALL_CELL = 44, 26
_LARGE_GRID = 14
_PALETTE_FRAMES = 8
_MARGIN, _HEADER, _FOOTER, _LINE = 16, 38, 58, 20
_TEXT, _TITLE = 14, 17
_CODE_WIDTH = (300, 560)
_ACTION, _TRUE, _FALSE = (255, 224, 130), (187, 230, 195), (247, 198, 193)
_HIGHLIGHT_INK = (20, 20, 20)


@dataclass(frozen=True)
class Caption:
    """The header of the frames.

    :param task: environment id.
    :param state: number of the initial state.
    """

    task: str
    state: int


class RunPictures:
    """The frames of a trace.

    :param limit: most frames; the steps beyond are left out, which the last frame states.
    :raises FailedPrecondition: without Pillow.
    """

    def __init__(self, trace: Trace, caption: Caption, limit: int = MAX_FRAMES) -> None:
        if importlib.util.find_spec("PIL") is None:
            message = f"pictures need Pillow: {install_command('renderer')}"
            raise FailedPrecondition(message, reason="MISSING_EXTRA")
        self._trace, self._caption = trace, caption
        self._steps = trace.steps[: max(0, limit - 2)]
        self._lines = trace.printout.text.split("\n")
        contents = trace.contents
        large = max(contents.rows, contents.columns) > _LARGE_GRID
        self.cell = _SMALL_CELL if large else _CELL
        """Pixels of a cell."""
        longest = max(_text_width(line) for line in self._lines)
        code = min(max(_CODE_WIDTH[0], longest + 90), _CODE_WIDTH[1])
        grid_width, grid_height = contents.columns * self.cell, contents.rows * self.cell
        self._code_left = 2 * _MARGIN + grid_width
        body = max(grid_height, min(len(self._lines), 20) * _LINE)
        self._shown_lines = body // _LINE
        # H.264 needs even sizes.
        self.size = _even(self._code_left + code + _MARGIN), _even(_HEADER + body + _FOOTER)
        """Width and height in pixels."""

    def __len__(self) -> int:
        return len(self._steps) + 2

    def __iter__(self) -> Iterator[Image.Image]:
        contents = copy.deepcopy(self._trace.contents)
        agent, total = self._trace.start, 0.0
        yield self._frame(contents, agent, None, f"start · {len(self._trace.steps)} steps follow", total)
        for number, step in enumerate(self._steps, start=1):
            contents.change(step)
            agent, total = step.agent, total + step.reward
            yield self._frame(contents, agent, step, self._describe(number, step), total)
        yield self._frame(contents, agent, None, self._ending(), self._trace.total)

    def place(self, row: int, column: int) -> tuple[int, int]:
        """Return the left upper corner of a cell in pixels."""
        return _MARGIN + column * self.cell, _HEADER + row * self.cell

    def line_box(self, line: int, executing: int | None = None) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom of a line of the program, from 1, while ``executing`` is highlighted."""
        top = _HEADER + (line - 1 - self._first_line(executing)) * _LINE
        return self._code_left, top, self.size[0] - _MARGIN, top + _LINE

    def _first_line(self, executing: int | None) -> int:
        """The first line shown, from 0: longer programs scroll with the executing line."""
        room = len(self._lines) - self._shown_lines
        return 0 if executing is None or room <= 0 else min(max(0, executing - 1 - self._shown_lines // 2), room)

    def _describe(self, number: int, step: Step) -> str:
        text = f"step {number}/{len(self._trace.steps)} · {step.operation}"
        if step.kind == "test":
            return f"{text} is {step.result}"
        return f"{text} · reward {step.reward:+.3g}" if step.reward else text

    def _ending(self) -> str:
        trace = self._trace
        cut = len(trace.steps) - len(self._steps)
        left_out = f"{cut} steps are left out; " if cut else ""
        if trace.terminated:
            return f"{left_out}the task ended the episode"
        if trace.exhausted or trace.crashed:
            return f"{left_out}stopped: a loop returned to an earlier state, or too many calls"
        return f"{left_out}the program came to its end"

    def _frame(self, contents: Contents, agent: Agent, step: Step | None, text: str, total: float) -> Image.Image:
        from PIL import Image, ImageDraw

        image = Image.new("RGB", self.size, BACKGROUND)
        pen = ImageDraw.Draw(image)
        header = f"{self._caption.task} · state {self._caption.state}"
        pen.text((_MARGIN, _HEADER / 2), header, fill=INK, font=_font(_TITLE), anchor="lm")
        self._draw_grid(pen, contents, agent)
        self._draw_code(pen, step)
        bottom = self.size[1] - _FOOTER
        pen.text((_MARGIN, bottom + 18), text, fill=INK, font=_font(_TEXT), anchor="lm")
        note = f"    {agent.note}" if agent.note else ""
        pen.text((_MARGIN, bottom + 40), f"return {total:.3g}{note}", fill=INK, font=_font(_TITLE), anchor="lm")
        return image

    def _draw_grid(self, pen: Any, contents: Contents, agent: Agent) -> None:
        for row in range(contents.rows):
            for column in range(contents.columns):
                x, y = self.place(row, column)
                box = (x, y, x + self.cell, y + self.cell)
                fill = WALL if (row, column) in contents.walls else (255, 255, 255)
                pen.rectangle(box, fill=fill, outline=GRID_LINE)
                if name := contents.objects.get((row, column)):
                    draw_object(pen, box, name)
                if count := contents.markers.get((row, column), 0):
                    draw_markers(pen, box, count, _font(max(10, self.cell // 3)))
        x, y = self.place(agent.row, agent.column)
        beneath = contents.markers.get((agent.row, agent.column), 0)
        carried = agent.note.removeprefix("carrying a ") if agent.note.startswith("carrying") else ""
        draw_agent(pen, (x, y, x + self.cell, y + self.cell), agent.heading, beneath, _font(10), carried)

    def _draw_code(self, pen: Any, step: Step | None) -> None:
        executing = None if step is None else step.line
        first = self._first_line(executing)
        for number, line in list(enumerate(self._lines, start=1))[first : first + self._shown_lines]:
            left, top, right, bottom = self.line_box(number, executing)
            ink = INK
            if step is not None and number == executing:
                colour = _ACTION if step.kind == "action" else (_TRUE if step.result else _FALSE)
                pen.rectangle((left, top, right, bottom - 1), fill=colour)
                ink = _HIGHLIGHT_INK
            middle = (top + bottom) / 2
            pen.text((left + 24, middle), str(number), fill=MUTED, font=_font(11), anchor="rm")
            pen.text((left + 34, middle), _shorten(line, right - left - 40), fill=ink, font=_font(_TEXT), anchor="lm")


def write_gif(pictures: RunPictures, path: Path, *, fps: float) -> int:
    """Write the frames as a GIF that repeats, and return their number; the last frame stays for two seconds.

    The file is complete or does not exist.
    """
    from PIL import Image

    duration = round(1000 / fps)
    # One palette for all frames, of a few of them: a changing one would make colours flicker.
    sources = list(itertools.islice(pictures, 0, None, max(1, len(pictures) // _PALETTE_FRAMES)))
    palette = _stack(sources).quantize(128, dither=Image.Dither.NONE)
    first, *rest = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in pictures]
    partial = path.with_name(f".{path.name}.part")
    try:
        first.save(
            partial,
            format="GIF",
            save_all=True,
            append_images=rest,
            duration=[duration] * len(rest) + [max(2000, duration)],
            loop=0,
            optimize=False,
            disposal=1,
        )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return 1 + len(rest)


def _stack(images: list[Image.Image]) -> Image.Image:
    """Return one picture of pictures of the same size, one below the other."""
    from PIL import Image

    width, height = images[0].size
    stack = Image.new("RGB", (width, height * len(images)))
    for number, image in enumerate(images):
        stack.paste(image, (0, number * height))
    return stack


def _even(value: float) -> int:
    return int(value) + int(value) % 2


def _text_width(text: str) -> int:
    return int(_font(_TEXT).getlength(text))


def _shorten(text: str, width: int) -> str:
    if _text_width(text) <= width:
        return text
    while text and _text_width(text + "…") > width:
        text = text[:-1]
    return text + "…"


@cache
def _font(size: int) -> Any:
    """Return a font: monospaced if matplotlib, which has one, is installed, else Pillow's."""
    from PIL import ImageFont

    spec = importlib.util.find_spec("matplotlib")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / "mpl-data" / "fonts" / "ttf" / "DejaVuSansMono.ttf"
        if path.is_file():
            return ImageFont.truetype(str(path), size)
    return ImageFont.load_default(size)
