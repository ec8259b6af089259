"""A search over programs as the search's process runs it: block by block, with a state between blocks.

`dressage.programs.search` does the work; its result depends on the task only, not on blocks, threads or interruptions. What is
only counted (cache hits, episodes) does: threads look a little too far, and a resumed search begins with an empty cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from dressage.errors import InvalidArgument
from dressage.programs.engine.trees import flatten, unflatten
from dressage.programs.families import program_task
from dressage.programs.languages.stepped import DrawingScorer
from dressage.programs.search.algorithms import new_search
from dressage.programs.search.best import Improvement
from dressage.programs.search.parallel import Scorer, Scorers
from dressage.programs.search.settings import CEM_OF_TASK, Latent, Schedule, SearchSettings
from dressage.programs.syntax import to_text

from dressage_trainer.search.messages import MAX_IMPROVEMENTS, PROGRAM_ALGORITHMS, ProgramSearchTask

_BLOCK_SECONDS = 0.25
_FIRST_BLOCK = 1024
_LARGEST_BLOCK = 1 << 18
_HITS, _EPISODES = 1, 2


@dataclass(frozen=True)
class BetterProgram:
    """A better program than all before it.

    :param evaluated: programs evaluated until then, itself included.
    """

    evaluated: int
    score: float
    program: str


@dataclass(frozen=True)
class ProgramProgress:
    """The results of a search so far."""

    evaluated: int = 0
    episodes: int = 0
    cache_hits: int = 0
    improvements: tuple[BetterProgram, ...] = ()
    env_steps: int = 0
    """Not counted: an engine gives up episodes."""


class ProgramSearch:
    """One search. Use it as a context manager: it holds threads.

    :param tick: called after each episode where candidates are played in Python, which may take long.
    :raises InvalidArgument: for a start program that the engine cannot run, or a plug-in that does not work.
    """

    def __init__(self, task: ProgramSearchTask, *, tick: Callable[[], None] | None = None) -> None:
        self._identity = task.identity()
        chosen = program_task(task.environment, task.profile)
        self._language = chosen.language
        settings = SearchSettings(
            algorithm=PROGRAM_ALGORITHMS[task.algorithm],  # type: ignore[arg-type]
            budget=task.budget,
            seed=task.seed,
            target=float("inf") if task.target is None else task.target,
            neighbours=task.neighbours,
            schedule=Schedule(**task.schedule),
            latent=CEM_OF_TASK.get(chosen.name, Latent()) if task.algorithm == "latent_cem" else Latent(),
        )
        starts = [flatten(chosen.parse(text), chosen.language) for text in task.programs]
        in_python = bool(chosen.family.note)

        def scorer() -> Scorer:
            new = chosen.scorer(task.states)
            if isinstance(new, DrawingScorer) and tick is not None:
                new.tick = tick
            return new

        # Threads would wait for each other in Python; the result does not depend on their number.
        self._scorers = Scorers(scorer, 1 if in_python else task.threads)
        self._improvements: list[Improvement] = []
        self._search = new_search(self._scorers, settings, starts, on_improvement=self._improvements.append)
        self._block = 1 if in_python else _FIRST_BLOCK
        self._counted = (0, 0)  # cache hits and episodes of earlier processes
        self.progress = ProgramProgress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scorers.close()

    @property
    def done(self) -> bool:
        """Whether the budget is spent or the target reached."""
        return self._search.finished

    def advance(self, *, on_improvement: Callable[[BetterProgram], None]) -> None:
        """Evaluate one more block of programs.

        :param on_improvement: called with each improvement.
        :raises InvalidArgument: for a start program that is nested too deeply.
        """
        begun = time.monotonic()
        self._search.run(until=self._search.programs + self._block)
        better = [
            BetterProgram(one.programs, one.score, to_text(unflatten(one.nodes, self._language)))
            for one in self._improvements
        ]
        self._improvements.clear()
        for one in better:
            on_improvement(one)
        hits, episodes = (int(self._scorers.counts[index]) for index in (_HITS, _EPISODES))
        self.progress = ProgramProgress(
            self._search.programs,
            self._counted[1] + episodes,
            self._counted[0] + hits,
            (*self.progress.improvements, *better)[-MAX_IMPROVEMENTS:],
        )
        seconds = time.monotonic() - begun
        if seconds < _BLOCK_SECONDS / 2:
            self._block = min(2 * self._block, _LARGEST_BLOCK)
        elif seconds > 2 * _BLOCK_SECONDS:
            self._block = max(1, self._block // 2)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue, as JSON."""
        return {
            "task": self._identity,
            "search": self._search.state(),
            "improvements": [[one.evaluated, one.score, one.program] for one in self.progress.improvements],
            "cache_hits": self.progress.cache_hits,
            "episodes": self.progress.episodes,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state` of the same task.

        :raises InvalidArgument: if it is damaged.
        """
        try:
            improvements = tuple(
                BetterProgram(int(number), float(score), str(text)) for number, score, text in state["improvements"]
            )
            self._search.restore(dict(state["search"]))
            self._counted = (int(state["cache_hits"]), int(state["episodes"]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidArgument(f"the state of the search is damaged: {error!r}", field="state") from error
        self.progress = replace(
            self.progress,
            evaluated=self._search.programs,
            cache_hits=self._counted[0],
            episodes=self._counted[1],
            improvements=improvements,
        )
