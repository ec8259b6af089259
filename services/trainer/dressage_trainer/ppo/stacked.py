"""Many members trained as one: collect, update, repeat.

A `StackedPPO` holds a group of members of equal shape (`Hyperparameters.shape_key`). Between two calls of `iterate`
it stands at an update boundary, and `snapshot` holds all of its state: restored into a group built from the same
members it goes on to the same bits.

The update compiles in a thread while the first rollout is collected, since both take about a second or two.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters

from dressage_trainer.ppo.actions import action_space_of
from dressage_trainer.ppo.collect import Collector
from dressage_trainer.ppo.faults import Faults, Stop
from dressage_trainer.ppo.generators import member_streams, pack_generator, unpack_generator
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward
from dressage_trainer.ppo.lanes import LaneUpdate
from dressage_trainer.ppo.members import MemberSpec, group_members
from dressage_trainer.ppo.network import initial_weights, stack
from dressage_trainer.ppo.update import Adam, Coefficients, Rollout, initial_adam

Metrics = dict[str, float | None]

__all__ = ["MemberSpec", "Metrics", "StackedPPO", "group_members", "use_compilation_cache"]

_shaped: Any = jax.ShapeDtypeStruct


def use_compilation_cache(directory: str) -> None:
    """Keep compiled updates in ``directory`` and reuse them; a read-only one is only read."""
    config: Any = jax.config
    config.update("jax_compilation_cache_dir", directory)
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # The caches of XLA itself are for GPUs; they put the folder's name into the key, which would miss in any other folder.
    config.update("jax_persistent_cache_enable_xla_caches", "none")


class StackedPPO:
    """PPO over a group of members.

    :param members: of equal shape.
    :param environment: len(members) * num_envs rows.
    :param threads: cores for the update; results are bit-equal for one number of threads.
    :param dtype: float32; float64 for equality tests.
    :param clock: seconds, monotonic; for the speeds in the metrics.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        *,
        environment: Environment,
        reward: Reward,
        threads: int = 1,
        dtype: Any = np.float32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.members = list(members)
        self.updates = 0
        self.faults = Faults()
        self.compile_seconds: float | None = None
        self._clock, self._dtype = clock, dtype
        first = self._check_members(environment)
        self._first = first
        self.action_space = action_space_of(environment)
        self._sizes = (environment.observation_size, environment.action_size)
        self._layers = len(first.hidden_sizes)
        streams = [member_streams(m.seed, first.num_envs) for m in self.members]
        self._orders = [s.order for s in streams]
        self.collector = Collector(
            environment=environment,
            reward=reward,
            members=len(self.members),
            num_steps=first.num_steps,
            hidden_layers=self._layers,
            discounts=np.array([m.hyperparameters.discount for m in self.members]),
            normalize_observation=first.normalize_observation,
            normalize_reward=first.normalize_reward,
            generators=[s.noise for s in streams],
            faults=self.faults,
            dtype=dtype,
        )
        self._env_seeds = [seed for s in streams for seed in s.env_seeds]
        self._started = False
        self._weights = stack(
            [
                initial_weights(
                    observation_size=self._sizes[0],
                    action_size=self.action_space.outputs,
                    hidden_sizes=first.hidden_sizes,
                    initial_log_std=None if self.action_space.discrete else m.hyperparameters.initial_log_std,
                    rng=s.weights,
                    dtype=dtype,
                )
                for m, s in zip(self.members, streams, strict=True)
            ]
        )
        with self._precision():
            self._adam = jax.tree.map(np.asarray, initial_adam(self._weights, len(self.members)))
        self._optimise = LaneUpdate(
            members=len(self.members),
            threads=threads,
            minibatch_size=first.minibatch_size,
            weights=sum(array[0].size for array in self._weights.values()),
            epochs=self._max_epochs,
            hidden_layers=self._layers,
            sizes=self._sizes,
            discrete=self.action_space.discrete,
            precision=self._precision,
            clock=clock,
        )

    def _check_members(self, environment: Environment) -> Hyperparameters:
        keys = {m.hyperparameters.validate().shape_key for m in self.members}
        if len(keys) != 1:
            raise InvalidArgument(
                field="members", value=sorted(map(str, keys)), expected="members of one shape key, at least one"
            )
        first = self.members[0].hyperparameters
        rows = len(self.members) * first.num_envs
        if environment.num_envs != rows:
            raise InvalidArgument(field="environment.num_envs", value=environment.num_envs, expected=str(rows))
        return first

    @property
    def steps(self) -> int:
        """Environment steps that each member has taken."""
        return self.collector.steps_done

    @property
    def all_stopped(self) -> bool:
        """True once no member can go on."""
        return len(self.faults.stops) == len(self.members)

    def compile(self) -> float:
        """Compile the update for this group's shapes, and wait; the seconds that it took."""
        if not self._optimise.compiling:
            self._compile()
        self.compile_seconds = self._optimise.wait()
        return self.compile_seconds

    def iterate(self) -> list[Metrics]:
        """One rollout and one update; a row of metrics for each member."""
        if not self._optimise.compiling:
            self._compile()
        self._start()
        began = self._clock()
        rollout = self.collect()
        collected = self._clock()
        seen = self._update(rollout)
        ended = self._clock()
        self.updates += 1
        return self._rows(seen, collected - began, ended - collected)

    def collect(self) -> Rollout:
        """One rollout by the policies as they are."""
        self._start()
        return self.collector.collect(self._weights)

    def _start(self) -> None:
        if not self._started:
            self.collector.start(self._env_seeds)
            self._started = True

    def _update(self, rollout: Rollout) -> dict[str, np.ndarray]:
        self.compile_seconds = self._optimise.wait()
        self._weights, self._adam, seen = self._optimise(
            self._weights, self._adam, rollout, self._draw_orders(), self._coefficients()
        )
        for member in np.flatnonzero(seen["broken"]):
            self._stop_by_gradient(int(member))
        return seen

    def _stop_by_gradient(self, member: int) -> None:
        message = f"the gradient was not finite in update {self.updates + 1} (environment step {self.steps})"
        stop = Stop(member=member, step=self.steps, cause="gradient", term="", message=message)
        self.faults.stops.setdefault(member, stop)

    def _draw_orders(self) -> np.ndarray:
        batch = self._first.batch_size
        epochs = self._max_epochs
        orders = np.empty((epochs, len(self.members), batch), np.int32)
        for index, (member, generator) in enumerate(zip(self.members, self._orders, strict=True)):
            for epoch in range(epochs):
                # A member draws for its own epochs only: companions with more must not move its stream.
                mine = epoch < member.hyperparameters.epochs
                orders[epoch, index] = generator.permutation(batch) if mine else 0
        return orders

    @property
    def _max_epochs(self) -> int:
        return max(m.hyperparameters.epochs for m in self.members)

    def _coefficients(self) -> Coefficients:
        def column(name: str) -> np.ndarray:
            return np.array([getattr(m.hyperparameters, name) for m in self.members], self._dtype)

        kl = [m.hyperparameters.target_kl for m in self.members]
        epochs = np.array([m.hyperparameters.epochs for m in self.members], np.int32)
        return Coefficients(
            learning_rate=column("learning_rate"),
            clip_range=column("clip_range"),
            entropy=column("entropy_coef"),
            value=column("value_coef"),
            max_grad_norm=column("max_grad_norm"),
            target_kl=np.array([np.inf if value is None else value for value in kl], self._dtype),
            epochs=np.where(self.faults.mask(len(self.members)), 0, epochs).astype(np.int32),
            discount=column("discount"),
            gae_lambda=column("gae_lambda"),
        )

    def _compile(self) -> None:
        """Begin to compile the update for this group's shapes, in a thread."""
        self._optimise.compile(
            self._weights, self._adam, self._rollout_shapes(), self._order_shape(), self._coefficients()
        )

    def _rollout_shapes(self) -> Rollout:
        m, t, n = len(self.members), self._first.num_steps, self._first.num_envs
        size, actions = self._sizes

        def shape(*dims: int) -> Any:
            return _shaped((m, *dims), self._dtype)

        rows = shape(t, n)
        return Rollout(shape(t, n, size), shape(t, n, actions), rows, rows, rows, shape(n, size))

    def _order_shape(self) -> Any:
        return _shaped((self._max_epochs, len(self.members), self._first.batch_size), np.int32)

    def _precision(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = jax.enable_x64(self._dtype == np.float64)
        return context

    def _rows(self, seen: dict[str, np.ndarray], collecting: float, updating: float) -> list[Metrics]:
        steps = self._first.batch_size * len(self.members)
        speeds: Metrics = {
            "update": float(self.updates),
            "step": float(self.steps),
            "collect_steps_per_second": steps / max(collecting, 1e-9),
            "update_steps_per_second": steps / max(updating, 1e-9),
            "steps_per_second": steps / max(collecting + updating, 1e-9),
        }
        rows = []
        for index, episodes in enumerate(self.collector.episodes.take()):
            numbers = {name: float(v[index]) for name, v in seen.items() if name != "broken"}
            row = {**speeds, **episodes, **numbers}
            # JSON has no NaN: an undefined figure is null.
            rows.append({name: v if v is not None and np.isfinite(v) else None for name, v in row.items()})
        return rows

    def weights(self, member: int) -> Arrays:
        """A member's weights and observation statistics, named as in the policy bundle."""
        moments = self.collector.observations.moments
        return {
            **{name: value[member].copy() for name, value in self._weights.items()},
            "obs_mean": moments.mean[member].copy(),
            "obs_var": moments.var[member].copy(),
        }

    def return_statistics(self, member: int) -> tuple[float, float, float]:
        """Mean, variance and count of the member's discounted return, for export to VecNormalize."""
        moments = self.collector.returns.moments
        return float(moments.mean[member]), float(moments.var[member]), float(moments.count[member])

    def snapshot(self) -> Arrays:
        """All state at an update boundary, as flat named arrays."""
        self._start()
        stops = json.dumps([asdict(stop) for stop in self.faults.stops.values()]).encode()
        return {
            **{f"weights/{name}": value.copy() for name, value in self._weights.items()},
            **{f"adam/first/{name}": np.array(value) for name, value in self._adam.first.items()},
            **{f"adam/second/{name}": np.array(value) for name, value in self._adam.second.items()},
            "adam/step": np.array(self._adam.step),
            "generators/noise": np.stack([pack_generator(g) for g in self.collector.generators]),
            "generators/order": np.stack([pack_generator(g) for g in self._orders]),
            "updates": np.array(self.updates),
            "stops": np.frombuffer(stops, np.uint8).copy(),
            **{f"collector/{name}": value for name, value in self.collector.snapshot().items()},
        }

    def restore(self, arrays: Arrays) -> None:
        """The inverse of `snapshot`.

        :raises InvalidArgument: where the snapshot is of other members or shapes.
        """
        for name, value in self._weights.items():
            stored = arrays.get(f"weights/{name}")
            if stored is None or stored.shape != value.shape:
                seen = None if stored is None else stored.shape
                raise InvalidArgument(field=f"snapshot weights/{name}", value=seen, expected=f"shape {value.shape}")
        names = list(self._weights)
        self._weights = {name: np.array(arrays[f"weights/{name}"]) for name in names}
        self._adam = Adam(
            np.array(arrays["adam/step"]),
            {name: np.array(arrays[f"adam/first/{name}"]) for name in names},
            {name: np.array(arrays[f"adam/second/{name}"]) for name in names},
        )
        self.collector.generators = [unpack_generator(words) for words in arrays["generators/noise"]]
        self._orders = [unpack_generator(words) for words in arrays["generators/order"]]
        self.updates = int(arrays["updates"])
        stops = json.loads(np.asarray(arrays["stops"], np.uint8).tobytes() or b"[]")
        self.faults.stops.update({item["member"]: Stop(**item) for item in stops})
        start = "collector/"
        self.collector.restore({n[len(start) :]: v for n, v in arrays.items() if n.startswith(start)})
        self._started = True
