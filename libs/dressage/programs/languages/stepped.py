"""The slow path of a plug-in: a Gymnasium environment that is stepped in Python, and searches whose candidates Python draws.

An episode is that of the engine, by the walk over the tree that traces use. Errors of the plug-in's code name its function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.errors import InvalidArgument
from dressage.programs.engine.grammar import Grammar
from dressage.programs.engine.trees import Nodes, flatten, unflatten
from dressage.programs.languages.failures import plugin_code
from dressage.programs.languages.plugin import View
from dressage.programs.search.parallel import Match
from dressage.programs.syntax import Language, Program, Test, measure
from dressage.programs.trace import Agent, Contents, Effect, run

CACHED = 1 << 15
"""Programs that a scorer remembers."""
_SLACK = 1e-9
_BEST = 1.0
_CANDIDATES, _HITS, _EPISODES, _GIVEN_UP = range(4)
_MAX_STATE_BYTES = 1 << 20
_MAX_ROWS, _MAX_COLUMNS = 200, 200


class GymnasiumWorld:
    """One initial state in a Gymnasium environment; see `dressage.programs.trace.World`.

    :param environment: see `dressage.programs.languages.plugin.ProgramEnvironment`; it is reset.
    """

    legend = "# is a wall, @ is the agent."

    def __init__(self, environment: Any, language: Language, state: int, max_calls: int) -> None:
        self._environment, self._language, self.max_calls = environment, language, max_calls
        self._state: Hashable = None
        with plugin_code("environment.reset"):
            environment.reset(seed=state)

    def perceive(self, test: Test) -> bool:
        with plugin_code("environment.perceive"):
            outcome = self._environment.perceive(test.name, test.argument)
        if not isinstance(outcome, bool | np.bool_):
            raise InvalidArgument(field=f"environment.perceive({test.name!r})", value=outcome, expected="True or False")
        return bool(outcome)

    def act(self, action: str, *, blocked: bool) -> Effect:
        """Act; an action beyond the limit of calls does nothing."""
        if blocked:
            return Effect(0.0, False)
        with plugin_code("environment.step"):
            result = self._environment.step(self._language.actions.index(action))
        if not isinstance(result, tuple) or len(result) != 5:
            expected = "(observation, reward, terminated, truncated, info)"
            raise InvalidArgument(field="environment.step", value=result, expected=expected)
        reward, ended = result[1], bool(result[2]) or bool(result[3])
        if not isinstance(reward, int | float | np.integer | np.floating) or not np.isfinite(reward):
            raise InvalidArgument(field="environment.step", value=reward, expected="a finite reward")
        return Effect(float(reward), ended)

    def state(self) -> Hashable:
        with plugin_code("environment.loop_state"):
            state: Hashable = self._environment.loop_state()
            hash(state)
        if isinstance(state, bytes | str) and len(state) > _MAX_STATE_BYTES:
            expected = f"at most {_MAX_STATE_BYTES}"
            raise InvalidArgument(field="environment.loop_state", value=f"{len(state)} bytes", expected=expected)
        return state

    def agent(self) -> Agent:
        view = self._view()
        return Agent(view.row, view.column, view.heading, view.note)

    def grid(self) -> tuple[str, ...]:
        return self._view().rows

    def contents(self) -> Contents:
        rows = self._view().rows
        contents = Contents(len(rows), max((len(row) for row in rows), default=0))
        for i, row in enumerate(rows):
            contents.walls.update((i, j) for j, character in enumerate(row) if character == "#")
        return contents

    def view(self) -> tuple[str, ...]:
        seen = self._view()
        if not seen.rows:
            return ()

        def character(row: int, column: int) -> str:
            inside = 0 <= row < len(seen.rows) and 0 <= column < len(seen.rows[row])
            return seen.rows[row][column] if inside else " "

        return tuple("".join(character(seen.row + i, seen.column + j) for j in (-1, 0, 1)) for i in (-1, 0, 1))

    def _view(self) -> View:
        with plugin_code("environment.view"):
            look = getattr(self._environment, "view", None)
            seen = look() if callable(look) else View()
        good = isinstance(seen, View) and len(seen.rows) <= _MAX_ROWS
        if not good or any(not isinstance(row, str) or len(row) > _MAX_COLUMNS for row in seen.rows):
            raise InvalidArgument(field="environment.view", value=seen, expected="a View with rows of text")
        return seen


@dataclass(frozen=True)
class SteppedEpisode:
    """What happened from one initial state, as `dressage.programs.engine.playing.Episode` has it."""

    reward: float
    steps: int
    calls: int
    terminated: bool
    crashed: bool
    exhausted: bool


def play_stepped(program: Program, world: GymnasiumWorld) -> SteppedEpisode:
    """Play a program from one initial state."""
    ended = run(program, world)
    crashed = ended.crashed or ended.exhausted
    return SteppedEpisode(ended.total, ended.actions, ended.calls, ended.terminated, crashed, ended.exhausted)


Returns = Callable[[Nodes, int], float]
"""Plays a program in a variation."""
Neighbour = Callable[[Program, np.random.Generator], Program]


def nothing() -> None:
    """Do nothing."""


class DrawingScorer:
    """Scores programs one after another in Python; see `dressage.programs.search.parallel.Scorer`.

    :param returns: plays a program in a variation.
    :param neighbour: the plug-in's own function; None: that of the grammar.
    """

    def __init__(
        self,
        returns: Returns,
        *,
        variations: int,
        language: Language,
        grammar: Grammar,
        neighbour: Neighbour | None = None,
    ) -> None:
        self.counts = np.zeros(4, np.int64)
        self.variations = variations
        self.tick: Callable[[], None] = nothing
        """Called after each episode, so that a search reports that it is alive."""
        self._returns, self._language, self._grammar, self._neighbour = returns, language, grammar, neighbour
        self._bounds: dict[bytes, float] = {}

    def score(self, nodes: Nodes) -> tuple[float, NDArray[np.float64]]:
        returns = np.array([self._play(nodes, i) for i in range(self.variations)])
        return _mean(returns), returns

    def score_all(self, programs: Sequence[Nodes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows = [self.score(nodes) for nodes in programs]
        shape = (len(rows), self.variations)
        return np.array([score for score, _ in rows]), np.array([row for _, row in rows]).reshape(shape)

    def search(
        self, parent: Nodes, seed: int, first: int, end: int, step: int, limit: float, order: NDArray[np.int64]
    ) -> Match | None:
        for number in range(first, end, step):
            nodes = self._draw(parent, seed, number)
            self.counts[_CANDIDATES] += 1
            key = nodes.tobytes()
            if self._bounds.get(key, np.inf) <= limit:
                self.counts[_HITS] += 1
                continue
            bound, returns = self._score_or_bound(nodes, limit, order)
            if len(self._bounds) >= CACHED:
                self._bounds.pop(next(iter(self._bounds)))
            self._bounds[key] = bound
            if bound > limit:
                return number, nodes, bound, returns
        return None

    def _score_or_bound(
        self, nodes: Nodes, limit: float, order: NDArray[np.int64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the score of a program, or a bound of it that does not exceed the limit, and its returns."""
        returns, total, count = np.zeros(self.variations), 0.0, self.variations
        for k, i in enumerate(order.tolist()):
            returns[i] = self._play(nodes, i)
            total += returns[i]
            bound = (total + (count - 1 - k) * _BEST) / count + _SLACK
            if bound <= limit and k < count - 1:
                self.counts[_GIVEN_UP] += 1
                return bound, returns
        return _mean(returns), returns

    def _play(self, nodes: Nodes, i: int) -> float:
        result = self._returns(nodes, i)
        self.counts[_EPISODES] += 1
        self.tick()
        return result

    def _draw(self, parent: Nodes, seed: int, number: int) -> Nodes:
        if self._neighbour is None or not len(parent):
            from dressage.programs.search.draws import draw_nodes  # the compiler, which an episode does not need

            return draw_nodes(self._grammar, parent, seed, number)
        rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, number]))
        program = unflatten(parent, self._language)
        with plugin_code("neighbour"):
            drawn = self._neighbour(program, rng)
        return _check_program(drawn, self._language, self._grammar)


def _mean(returns: NDArray[np.float64]) -> float:
    total = 0.0
    for value in returns.tolist():  # in order, as the engine adds
        total += value
    return total / len(returns)


def _check_program(drawn: Any, language: Language, grammar: Grammar) -> Nodes:
    """Return the nodes of a neighbour that a plug-in drew.

    :raises InvalidArgument: if it is no program of the language, or beyond the limit of tokens.
    """
    if not isinstance(drawn, Program):
        raise InvalidArgument(field="neighbour", value=drawn, expected="a Program")
    try:
        nodes = flatten(drawn, language)
        tokens = measure(drawn).tokens
    except (InvalidArgument, RecursionError, AttributeError, TypeError) as error:
        expected = f"a program of the language {language.name} ({error})"
        raise InvalidArgument(field="neighbour", problem="no program", expected=expected) from error
    if tokens > grammar.max_tokens:
        expected = f"at most {grammar.max_tokens} tokens, as productions.max_tokens has it"
        raise InvalidArgument(field="neighbour", value=f"{tokens} tokens", expected=expected)
    return nodes


@contextmanager
def closing(environment: Any) -> Iterator[Any]:
    """Close an environment at the end, if it can be closed."""
    try:
        yield environment
    finally:
        close = getattr(environment, "close", None)
        if callable(close):
            with plugin_code("environment.close"):
                close()


def check_environment(environment: Any, language: Language, task: str) -> None:
    """Check the form of an environment.

    :raises InvalidArgument: naming the part that is wrong.
    """
    for name in ("reset", "step", "perceive", "loop_state"):
        if not callable(getattr(environment, name, None)):
            field = f"environment({task!r}).{name}"
            raise InvalidArgument(field=field, problem="missing", expected="a method, see ProgramEnvironment")
    count = getattr(getattr(environment, "action_space", None), "n", None)
    if count != len(language.actions):
        expected = f"Discrete({len(language.actions)}), one number for each action of the language"
        raise InvalidArgument(field=f"environment({task!r}).action_space", value=count, expected=expected)
