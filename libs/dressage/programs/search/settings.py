"""Settings of a search and the schedule of its neighbourhoods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from dressage.errors import InvalidArgument

Algorithm = Literal["random", "hc", "scheduled-hc", "cebs", "latent-cem", "latent-cebs"]
_ALGORITHMS = ("random", "hc", "scheduled-hc", "cebs", "latent-cem", "latent-cebs")
_MAX_BUDGET = 10**12
_MAX_CANDIDATES = 4096
_MAX_DEVIATION = 100.0


@dataclass(frozen=True)
class Schedule:
    """How many neighbours a climb of scheduled hill climbing draws, from the programs evaluated before it."""

    start: int = 32
    end: int = 2048
    programs: int = 1_000_000
    """Evaluated programs at which ``end`` is reached."""
    ratio: Literal["log", "linear"] = "log"
    """Scale on which the progress from 0 to ``programs`` is measured."""
    shape: Literal["sin", "linear"] = "sin"
    """How the progress turns into the part of the way from ``start`` to ``end``."""
    interpolation: Literal["log", "linear"] = "log"
    """Scale on which the neighbours grow from ``start`` to ``end``."""

    def __post_init__(self) -> None:
        """:raises InvalidArgument: for a bad setting."""
        for name, low in (("start", 1), ("end", 1), ("programs", 2)):
            if getattr(self, name) < low:
                raise InvalidArgument(
                    field=f"schedule.{name}", problem="too small", value=getattr(self, name), expected=f"at least {low}"
                )
        for name, values in (
            ("ratio", ("log", "linear")),
            ("shape", ("sin", "linear")),
            ("interpolation", ("log", "linear")),
        ):
            if getattr(self, name) not in values:
                raise InvalidArgument(
                    field=f"schedule.{name}", value=getattr(self, name), expected=f"one of {', '.join(values)}"
                )

    def neighbours(self, evaluated: int) -> int:
        """Return the number of neighbours for a climb that begins after so many evaluated programs."""
        if evaluated <= 0:
            return self.start
        if evaluated >= self.programs:
            return self.end
        log = self.ratio == "log"
        x = math.log10(evaluated) / math.log10(self.programs) if log else evaluated / self.programs
        r = (math.sin((2 * x - 1) * math.pi / 2) + 1) / 2 if self.shape == "sin" else x
        if self.interpolation == "linear":
            return math.ceil(self.start + r * (self.end - self.start))
        low, high = math.log2(self.start), math.log2(self.end)
        return math.ceil(2 ** (low + r * (high - low)))


@dataclass(frozen=True)
class Beam:
    """Sizes of a beam search; the defaults are those of LLM-GS."""

    candidates: int = 64
    """Programs drawn in each generation."""
    elites: int = 16
    """Programs of a generation that the next one's are neighbours of."""

    def __post_init__(self) -> None:
        """:raises InvalidArgument: for a bad setting."""
        if not 1 <= self.elites <= self.candidates <= _MAX_CANDIDATES:
            raise InvalidArgument(
                field="beam",
                value=f"{self.elites} of {self.candidates}",
                expected=f"1 <= elites <= candidates <= {_MAX_CANDIDATES}",
            )


@dataclass(frozen=True)
class Latent:
    """Sizes of a search in the latent space; the defaults are those of LLM-GS for CEBS."""

    candidates: int = 64
    """Points drawn in each generation."""
    elites: int = 16
    """Points of a generation that the next one continues from."""
    deviation: float = 0.25
    """Standard deviation of the points around their centre."""

    def __post_init__(self) -> None:
        """:raises InvalidArgument: for a bad setting."""
        if not 1 <= self.elites <= self.candidates <= _MAX_CANDIDATES:
            raise InvalidArgument(
                field="latent",
                value=f"{self.elites} of {self.candidates}",
                expected=f"1 <= elites <= candidates <= {_MAX_CANDIDATES}",
            )
        if not 0 < self.deviation <= _MAX_DEVIATION:
            raise InvalidArgument(
                field="latent.deviation", value=self.deviation, expected=f"more than 0, at most {_MAX_DEVIATION:g}"
            )


CEM_OF_TASK = {
    "StairClimber": Latent(32, 2, 0.25),
    "Maze": Latent(16, 2, 0.1),
    "FourCorners": Latent(64, 13, 0.5),
    "TopOff": Latent(64, 3, 0.25),
    "Harvester": Latent(32, 3, 0.5),
    "CleanHouse": Latent(32, 2, 0.25),
    "DoorKey": Latent(32, 3, 0.25),
    "OneStroke": Latent(64, 3, 0.5),
    "Seeder": Latent(32, 3, 0.25),
    "Snake": Latent(32, 6, 0.25),
}
"""Sizes of ``latent-cem`` for each task in LLM-GS (Liu et al. 2025)."""


@dataclass(frozen=True)
class SearchSettings:
    """What a search does. Every score that is looked at counts as one program, repeated ones included."""

    algorithm: Algorithm = "scheduled-hc"
    budget: int = 1_000_000
    """Programs to evaluate at most. The original checks its budget between climbs only; here it is exact."""
    seed: int = 0
    target: float = 1.0
    """Score that ends the search."""
    neighbours: int = 250
    """Neighbours of a climb with a fixed neighbourhood (``hc``)."""
    schedule: Schedule = field(default_factory=Schedule)
    beam: Beam = field(default_factory=Beam)
    """Sizes of a beam search (``cebs``)."""
    latent: Latent = field(default_factory=Latent)
    """Sizes of a search in the latent space (``latent-cem``, ``latent-cebs``)."""

    def __post_init__(self) -> None:
        """:raises InvalidArgument: for a bad setting."""
        if self.algorithm not in _ALGORITHMS:
            raise InvalidArgument(field="algorithm", value=self.algorithm, expected=f"one of {', '.join(_ALGORITHMS)}")
        for name, low, high in (("budget", 1, _MAX_BUDGET), ("neighbours", 1, _MAX_BUDGET), ("seed", 0, 2**63 - 1)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidArgument(field=name, problem="out of range", value=value, expected=f"from {low} to {high}")

    def climb_neighbours(self, evaluated: int) -> int:
        """Return the neighbours of a climb that begins now."""
        return self.neighbours if self.algorithm == "hc" else self.schedule.neighbours(evaluated)
