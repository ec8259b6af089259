"""A search: candidates are drawn, scored and compared in their order, block by block.

Blocks grow until one takes about a quarter of a second. Only the time depends on their size: candidates are compared in
their order, those after one that reaches the target do not count, and an algorithm draws the same candidates for any block
size: one that learns from scores ends a block where its next candidates need them. Between blocks the state is small and
complete: from it the search continues to the same bits.

Candidates are screened in batches. Where a policy may act there differently in the last digit, an improvement is played again
as its policy acts alone. That score counts: an evaluation on stock Gymnasium with the search's seeds gives the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from dressage.errors import InvalidArgument
from dressage.policies.kinds import kind
from numpy.typing import NDArray

from dressage_trainer.search.algorithms import algorithm
from dressage_trainer.search.messages import SearchTask
from dressage_trainer.search.scoring import Scorer, Scores, scorer

Array = NDArray[Any]
_BLOCK_SECONDS = 0.25
_FIRST_BLOCK = 64
_MAX_BLOCK = 1 << 16
_MAX_NUMBERS = 1 << 22
"""Parameters of a block's candidates, and returns of their episodes."""
_TICK_SECONDS = 0.1


@dataclass(frozen=True)
class Improvement:
    """A better candidate than all before it.

    :param evaluated: its number, from 1.
    """

    evaluated: int
    score: float
    parameters: Array


@dataclass(frozen=True)
class Progress:
    """The results of a search so far."""

    evaluated: int = 0
    env_steps: int = 0
    best_score: float = -np.inf
    best_parameters: Array = field(default_factory=lambda: np.zeros(0))
    improvements: tuple[tuple[int, float], ...] = ()
    """Number and score of each improvement, in order."""


class Search:
    """One search. Use it as a context manager: it holds threads.

    :param tick: called about ten times a second while candidates are played, in the caller's thread.
    :raises InvalidArgument: for an unknown algorithm.
    """

    def __init__(
        self, task: SearchTask, *, tick: Callable[[], None] = lambda: None, play: Scorer | None = None
    ) -> None:
        self._task, self._tick = task, tick
        self._scorer = play or scorer(task)
        self._algorithm = algorithm(
            task.algorithm,
            task.policy,
            seed=task.seed,
            scale=task.scale,
            limit=task.range,
            step_size=task.step_size,
        )
        self._threads = ThreadPoolExecutor(task.threads, thread_name_prefix="score")
        self._block = task.threads * min(self._scorer.part, _FIRST_BLOCK)
        width = max(kind(task.policy.kind).size(task.policy), task.episodes)
        self._largest_block = max(self._block, min(_MAX_BLOCK, _MAX_NUMBERS // width))
        self.progress = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    @property
    def done(self) -> bool:
        """Whether the budget is used or the target reached."""
        target, progress = self._task.target, self.progress
        return progress.evaluated >= self._task.budget or (target is not None and progress.best_score >= target)

    def advance(self) -> list[Improvement]:
        """Evaluate one more block of candidates; returns the improvements.

        :raises InvalidArgument: if a policy's output is no action of the environment.
        """
        count = min(self._block, self._task.budget - self.progress.evaluated)
        begun = time.monotonic()
        parameters = self._algorithm.ask(count)
        improvements, means = self._compare(parameters, self._score(parameters))
        if len(means) == len(parameters):
            self._algorithm.tell(means)
        if time.monotonic() - begun < _BLOCK_SECONDS / 2:
            self._block = min(2 * self._block, self._largest_block)
        return improvements

    def _score(self, parameters: Array) -> Scores:
        """Play all episodes of all candidates, spread over the threads."""
        size = max(1, min(self._scorer.part, -(-len(parameters) // self._task.threads)))
        parts = [parameters[start : start + size] for start in range(0, len(parameters), size)]
        return Scores.concatenate(self._wait_for([self._threads.submit(self._scorer.score, part) for part in parts]))

    def _wait_for(self, futures: Sequence[Future[Scores]]) -> list[Scores]:
        while wait(futures, timeout=_TICK_SECONDS).not_done:
            self._tick()
        return [future.result() for future in futures]

    def _compare(self, parameters: Array, scores: Scores) -> tuple[list[Improvement], list[float]]:
        """Count the candidates in their order, up to the one that reaches the target; return their scores, too."""
        improvements, means, progress = [], [], self.progress
        steps, best, evaluated = 0, progress.best_score, 0
        for vector, returns, lengths in zip(parameters, scores.returns, scores.lengths, strict=True):
            evaluated += 1
            score = float(returns.mean())
            if score > best:
                if not self._scorer.exact:
                    (confirmed,) = self._wait_for([self._threads.submit(self._scorer.confirm, vector)])
                    returns, lengths = confirmed.returns, confirmed.lengths
                    score = float(returns.mean())
                if score > best:
                    best = score
                    improvements.append(Improvement(progress.evaluated + evaluated, score, vector))
            means.append(score)
            steps += int(lengths.sum())
            if self._task.target is not None and best >= self._task.target:
                break
        self.progress = Progress(
            evaluated=progress.evaluated + evaluated,
            env_steps=progress.env_steps + steps,
            best_score=best,
            best_parameters=improvements[-1].parameters if improvements else progress.best_parameters,
            improvements=(*progress.improvements, *((one.evaluated, one.score) for one in improvements)),
        )
        return improvements, means

    def state(self) -> dict[str, Any]:
        """Return everything that the rest of the search depends on: JSON values, and the best candidate's numbers."""
        progress = self.progress
        return {
            "task": self._task.identity(),
            "algorithm": self._algorithm.state(),
            "evaluated": progress.evaluated,
            "env_steps": progress.env_steps,
            "improvements": [list(one) for one in progress.improvements],
            "best_parameters": progress.best_parameters,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same search, to the same bits.

        :raises InvalidArgument: if it belongs to another search, or is damaged.
        """
        if state.get("task") != self._task.identity():
            raise InvalidArgument(field="state", value=state.get("task"), expected="the state of this search")
        try:
            improvements = tuple((int(number), float(score)) for number, score in state["improvements"])
            progress = Progress(
                evaluated=int(state["evaluated"]),
                env_steps=int(state["env_steps"]),
                best_score=improvements[-1][1] if improvements else -np.inf,
                best_parameters=np.array(state["best_parameters"], np.float64),
                improvements=improvements,
            )
            generator = state["algorithm"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"the state of the search is damaged: {error!r}", field="state") from error
        self._algorithm.restore(generator)
        self.progress = progress
