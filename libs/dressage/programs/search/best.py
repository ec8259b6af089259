"""What every search of programs has: the programs it evaluated, and the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressage.programs.engine.trees import Nodes
from dressage.programs.search.settings import SearchSettings


@dataclass(frozen=True)
class Improvement:
    """A program better than all before it."""

    programs: int
    """Programs evaluated until then, itself included."""
    score: float
    nodes: Nodes


class BestSoFar:
    """Counts programs and remembers the best one.

    :param on_improvement: called with each improvement, in order, in the thread of the search.
    """

    def __init__(self, settings: SearchSettings, on_improvement: Callable[[Improvement], None] | None = None) -> None:
        self.settings = settings
        self.programs = 0
        """Programs evaluated."""
        self.best: Improvement | None = None
        self._on_improvement = on_improvement

    @property
    def solved(self) -> bool:
        """Whether the best score reaches the target."""
        return self.best is not None and self.best.score >= self.settings.target

    @property
    def finished(self) -> bool:
        """Whether the search is solved or its budget is spent."""
        return self.solved or self.programs >= self.settings.budget

    def _report(self, score: float, nodes: Nodes) -> None:
        """Take the program evaluated last, if it is the best one."""
        if self.best is None or score > self.best.score:
            self.best = Improvement(self.programs, score, nodes)
            if self._on_improvement is not None:
                self._on_improvement(self.best)

    def _state_so_far(self) -> dict[str, Any]:
        best = self.best
        row = best and {"programs": best.programs, "score": best.score, "nodes": best.nodes.tolist()}
        return {"programs": self.programs, "best": row}

    def _restore_so_far(self, state: dict[str, Any]) -> None:
        self.programs, best = state["programs"], state["best"]
        self.best = best and Improvement(best["programs"], best["score"], np.array(best["nodes"], np.int32))
