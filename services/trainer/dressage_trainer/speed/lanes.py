"""The compiled updates of PPO and SAC on several cores: members in lanes, taken by as many threads as there are cores.

XLA runs so small a network's gradient steps on one core, whatever its thread pool's size. Members are independent, so a
group of M is cut into lanes of equal size, which share one compiled function and run at the same time. Small minibatches
favour few wide lanes (a gradient step's fixed cost is shared by the members of its lane), large ones as many lanes as keep
every core busy. Where threads do not divide the lanes, some lanes pause after an epoch and resume later, so that all
threads end together: three lanes keep two cores busy for one and a half lanes' time.

The update compiles in a thread, so that the first rollout can be collected meanwhile; both take a second or two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from dressage_trainer.ppo.distributions import action_space_of
from dressage_trainer.ppo.interfaces import Arrays, Environment
from dressage_trainer.ppo.members import MemberSpec, most_epochs
from dressage_trainer.ppo.networks import weight_shapes
from dressage_trainer.ppo.ppo import Coefficients, RolloutBuffer, coefficients_of, update_functions
from dressage_trainer.ppo.train_state import Adam, TrainState, diagnostics_of, initial_adam, initial_state
from dressage_trainer.sac import sac
from dressage_trainer.sac.replay import Transitions

_FIXED_COST = 17 * 10_800
"""Cost of a gradient step, however many members share it, in samples times weights: 17 samples of a 64 x 64 network
(measured: some 16 us against 0.95 us a sample). Samples of larger networks take longer, so that it counts for less there."""
_CLOSE = 1.05
"""Three members a lane take 3 to 6 % longer a sample than one, where the fixed cost does not count (measured)."""
FLOAT32_OPTIONS = {"xla_cpu_enable_fast_math": True}
"""Reassociation and approximate division: 15 % faster. Infinities and NaNs stay honoured, which is XLA's default."""

_shaped: Any = jax.ShapeDtypeStruct
_block: Any = jax.block_until_ready


def lane_size(members: int, *, minibatch_size: int, threads: int, weights: int, epochs: int) -> int:
    """Choose how many members to stack in a lane: the divisor of ``members`` with the least time on ``threads`` cores, or
    a smaller one that takes hardly longer, since caches hold fewer members better.

    :param weights: of one member's networks.
    :param epochs: of an update; lanes are cut between them.
    """

    def time(size: int) -> int:
        rounds = max(math.ceil(members // size * epochs / max(threads, 1)), epochs)
        return rounds * (_FIXED_COST + size * minibatch_size * weights)

    times = {size: time(size) for size in range(1, members + 1) if members % size == 0}
    return min(size for size, took in times.items() if took <= _CLOSE * min(times.values()))


class Piece(NamedTuple):
    """Epochs ``first`` to ``last`` (excluded) of a lane."""

    lane: int
    first: int
    last: int


def pieces(lanes: int, *, threads: int, epochs: int) -> list[Piece]:
    """Cut lanes into pieces for threads to take one after the other, so that all end together (but for an epoch's length).

    McNaughton's wrap-around rule (Management Science 6(1), 1959): lay the lanes end to end and cut the line into as many
    equal parts as there are threads. One thread begins a cut lane at once, and another one ends it last. With no more lanes
    than threads each lane is a piece.
    """
    whole = [Piece(lane, 0, epochs) for lane in range(lanes)]
    if lanes <= threads:
        return whole
    begun, ended = [], []
    for thread in range(1, threads):
        lane, after = divmod(round(lanes * epochs * thread / threads), epochs)
        if after:
            begun.append(Piece(lane, 0, epochs - after))
            ended.append(Piece(lane, epochs - after, epochs))
    cut = {piece.lane for piece in begun}

    def longest_first(some: list[Piece]) -> list[Piece]:
        return sorted(some, key=lambda piece: piece.first - piece.last)

    return [*longest_first(begun), *(piece for piece in whole if piece.lane not in cut), *longest_first(ended)]


class Lanes:
    """Members cut into lanes of equal size, which up to ``threads`` threads take.

    :param size: members in a lane, a divisor of ``members``.
    """

    def __init__(self, members: int, *, size: int, threads: int) -> None:
        self.slices = [slice(start, start + size) for start in range(0, members, size)]
        self.threads = min(max(threads, 1), len(self.slices))
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="update")

    def run(self, units: int, work: Callable[[slice, Piece, Any], Any]) -> Any:
        """Do ``units`` units of work, such as epochs, of every lane.

        :param work: does a piece: its lane's members, the piece, and what the lane's piece before it returned (None: none).
        :returns: what the lanes' last pieces returned, arrays concatenated along the member axis, in numpy.
        """

        def do(piece: Piece, before: Future[Any] | None) -> Any:
            return work(self.slices[piece.lane], piece, None if before is None else before.result())

        # Shared out by epochs, not by lanes, so that no core idles at the end of an update (decision 0031).
        lanes: dict[int, Future[Any]] = {}
        for piece in pieces(len(self.slices), threads=self.threads, epochs=units):
            lanes[piece.lane] = self._pool.submit(do, piece, lanes.get(piece.lane))
        try:
            ends = [lanes[lane].result() for lane in range(len(self.slices))]
        finally:
            for future in lanes.values():
                future.cancel()  # after an error in one lane the others need not begin
        # Copies: the views that numpy would otherwise hold are of buffers that belong to the compiled functions.
        parts = [jax.tree.map(np.array, end) for end in ends]
        return parts[0] if len(parts) == 1 else jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


class BackgroundCompilation:
    """A compilation in a thread, so that the first steps can be taken meanwhile.

    :param compile_functions: compiles.
    :param clock: seconds, monotonic.
    """

    def __init__(self, compile_functions: Callable[[], Any], clock: Callable[[], float]) -> None:
        self._compile, self._clock = compile_functions, clock
        self._compiled: Future[tuple[Any, float]] | None = None

    def begin(self) -> None:
        """Start, unless that was done before."""
        if self._compiled is None:
            with ThreadPoolExecutor(1, thread_name_prefix="compile") as pool:
                self._compiled = pool.submit(self._measure)
                # Otherwise the end of the `with` would wait for the compilation.
                pool.shutdown(wait=False)

    def _measure(self) -> tuple[Any, float]:
        began = self._clock()
        return self._compile(), self._clock() - began

    def result(self) -> tuple[Any, float]:
        """Wait for what was compiled and the seconds that it took."""
        self.begin()
        assert self._compiled is not None
        return self._compiled.result()

    @property
    def seconds(self) -> float | None:
        """Seconds that compilation took; None until it is done."""
        return self._compiled.result()[1] if self._compiled is not None and self._compiled.done() else None


class PpoLanes:
    """Runs the updates of a group (`dressage_trainer.ppo.ppo.Optimise`), compiled once for a lane, on up to ``threads`` cores.

    Results are bit-equal for one number of threads.

    :param members: of equal shape.
    :param environment: for its sizes.
    :param size: members in a lane; None: `lane_size`.
    :param dtype: float32; float64 for equality tests.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        *,
        environment: Environment,
        threads: int,
        size: int | None = None,
        dtype: Any = np.float32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._members, self._environment, self._dtype = list(members), environment, dtype
        # On a GPU all members are one lane: threads would only queue behind each other.
        on_gpu = jax.default_backend() != "cpu"
        self._size = (
            size
            or (len(members) if on_gpu else 0)
            or lane_size(
                len(members),
                minibatch_size=members[0].hyperparameters.minibatch_size,
                threads=threads,
                weights=sum(math.prod(shape) for shape in self._weight_shapes().values()),
                epochs=most_epochs(members),
            )
        )
        self._lanes = Lanes(len(members), size=self._size, threads=threads)
        self._update = update_functions(members, environment)
        self.compilation = BackgroundCompilation(self._compile, clock)

    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        space = action_space_of(self._environment)
        return weight_shapes(
            observation_size=self._environment.observation_size,
            action_size=space.outputs,
            hidden_sizes=self._members[0].hyperparameters.hidden_sizes,
            log_std=not space.discrete,
        )

    def _compile(self) -> tuple[Any, Any]:
        settings, size = self._members[0].hyperparameters, self._size
        samples, epochs = settings.batch_size, most_epochs(self._members)
        weights = {name: np.zeros((size, *shape), self._dtype) for name, shape in self._weight_shapes().items()}
        state = jax.tree.map(shape_of, initial_state(weights, initial_adam(weights, size)))
        stopped = np.zeros(size, bool)
        c = jax.tree.map(shape_of, coefficients_of(self._members[:size], stopped=stopped, dtype=self._dtype))
        orders, number = _shaped((epochs, size, samples), np.int32), _shaped((), np.int32)
        # Not in float64, which is for tests of equality: reassociation would change the last digits.
        options = FLOAT32_OPTIONS if self._dtype == np.float32 and jax.default_backend() == "cpu" else None
        with jax.enable_x64(self._dtype == np.float64):
            prepare = self._update.prepare.lower(state.weights, self._rollout_shapes(), c)
            run_epochs = self._update.epochs.lower(state, prepare.out_info[0], orders, c, number, number)
            return prepare.compile(options), run_epochs.compile(options)

    def _rollout_shapes(self) -> RolloutBuffer:
        settings, environment = self._members[0].hyperparameters, self._environment
        t, n, d = settings.num_steps, settings.num_envs, environment.observation_size

        def shape(*dims: int) -> Any:
            return _shaped((self._size, *dims), self._dtype)

        rows = shape(t, n)
        return RolloutBuffer(shape(t, n, d), shape(t, n, environment.action_size), rows, rows, rows, shape(n, d))

    def __call__(
        self, weights: Arrays, adam: Adam, rollout: RolloutBuffer, orders: np.ndarray, coefficients: Coefficients
    ) -> tuple[Arrays, Adam, Arrays]:
        """Run an update; new weights, Adam's state and diagnostics. Numpy arrays in and out.

        :param orders: (epochs, M, T * n) integer permutations of each member's samples.
        """
        prepare, run_epochs = self.compilation.result()[0]

        def run(lane: slice, piece: Piece, before: Any) -> tuple[TrainState, Any, Any]:
            c = jax.tree.map(lambda x: x[lane], coefficients)
            with jax.enable_x64(self._dtype == np.float64):
                if before is None:
                    state = initial_state(*jax.tree.map(lambda x: x[lane], (weights, adam)))
                    samples, prepared = prepare(state.weights, jax.tree.map(lambda x: x[lane], rollout), c)
                else:
                    state, samples, prepared = before
                span = np.int32(piece.first), np.int32(piece.last)
                state = _block(run_epochs(state, samples, orders[:, lane], c, *span))
            return state, None if piece.last == len(orders) else samples, prepared

        end: TrainState
        end, _, diagnostics = self._lanes.run(len(orders), run)
        return end.weights, end.adam, {**diagnostics, **diagnostics_of(end)}


def shape_of(array: np.ndarray) -> Any:
    """Return shape and type of an array, to compile for."""
    return _shaped(array.shape, array.dtype)


class SacLanes:
    """Runs the gradient steps of a group (`dressage_trainer.sac.sac.Optimise`) in lanes, as `PpoLanes` runs PPO's updates.

    Parameters are those of `PpoLanes`. A gradient step of SAC takes milliseconds, so that a fixed cost does not count, and
    a member a lane is the fastest.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        *,
        environment: Environment,
        threads: int,
        size: int = 1,
        dtype: Any = np.float32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._members, self._environment, self._size, self._dtype = list(members), environment, size, dtype
        self._lanes = Lanes(len(members), size=size, threads=threads)
        self.compilation = BackgroundCompilation(self._compile, clock)

    def _compile(self) -> Any:
        members, g = self._members[: self._size], sac.settings_of(self._members).gradient_steps
        generators = [np.random.default_rng(0) for _ in members]
        state = sac.first_state(members, generators, self._environment, dtype=self._dtype)
        d, a = self._environment.observation_size, self._environment.action_size

        def shape(*dims: int) -> Any:
            return _shaped((g, self._size, members[0].hyperparameters.minibatch_size, *dims), self._dtype)

        transitions = Transitions(shape(d), shape(a), shape(d), shape(), shape())
        c = jax.tree.map(shape_of, sac.coefficients_of(members, dtype=self._dtype))
        arguments = (jax.tree.map(shape_of, state), sac.Minibatches(transitions, shape(a), shape(a)), c)
        number = _shaped((), np.int32)
        with jax.enable_x64(self._dtype == np.float64):
            lowered = sac.update_function(self._members).lower(*arguments, number, number)
            return lowered.compile(FLOAT32_OPTIONS if self._dtype == np.float32 else None)

    def __call__(
        self, state: sac.SacState, minibatches: sac.Minibatches, coefficients: sac.Coefficients
    ) -> sac.SacState:
        """Run a gradient step for each minibatch. Numpy arrays in and out."""
        update = self.compilation.result()[0]

        def run(lane: slice, piece: Piece, before: Any) -> sac.SacState:
            begun = jax.tree.map(lambda x: x[lane], state) if before is None else before
            batches = jax.tree.map(lambda x: np.ascontiguousarray(x[:, lane]), minibatches)
            c = jax.tree.map(lambda x: x[lane], coefficients)
            with jax.enable_x64(self._dtype == np.float64):
                end: sac.SacState = _block(update(begun, batches, c, np.int32(piece.first), np.int32(piece.last)))
            return end

        state = self._lanes.run(len(minibatches.noise), run)
        return state
