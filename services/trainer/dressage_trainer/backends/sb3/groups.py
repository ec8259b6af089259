"""A member that Stable-Baselines3 trains: a group of one, since its models train one at a time."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.installation import install_command
from dressage.policies import PolicyCard
from dressage.training.sac import SacHyperparameters

from dressage_trainer.backends.group import (
    MemberSetup,
    Outcome,
    action_facts,
    begin_or_resume,
    check_actions,
    check_memory,
    divergence_warnings,
    facts_of,
    member_specs,
    stopped_message,
    versions_of,
)
from dressage_trainer.backends.metrics import MemberMetrics
from dressage_trainer.backends.monitor import Monitor
from dressage_trainer.backends.reward import WatchedReward, fields_read
from dressage_trainer.checkpoints import Snapshot
from dressage_trainer.messages import MemberPolicy, MemberState, WarningMessage
from dressage_trainer.ppo.faults import Stop
from dressage_trainer.ppo.inputs import seen_by_networks, widen
from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.members import MemberSpec, member_streams
from dressage_trainer.ppo.normalizer import EPSILON

try:
    import torch

    from dressage_trainer.backends.sb3 import models
    from dressage_trainer.backends.sb3.vecenv import MemberStopped, RewardedVecEnv, StoppingNormalizer
except ImportError as error:
    raise FailedPrecondition(
        f"the backend sb3 needs torch and stable-baselines3 where training runs: {install_command('sb3')}",
        reason="MISSING_PACKAGE",
    ) from error

_PACKAGES = ("dressage", "gymnasium", "mujoco", "numpy", "stable-baselines3", "torch")

Row = dict[str, float | None]


def build_groups(
    setup: MemberSetup, *, make_batch: Callable[..., Any], resumed: Snapshot | None = None
) -> list[Sb3Group]:
    """Build one group per member.

    :param resumed: the snapshot that the run resumes from; None if it begins. No reference to it is kept: it may contain
        replay buffers.
    :raises InvalidArgument: for an unknown algorithm, bad hyperparameters, or a checkpoint of other members.
    """
    algorithm = setup.spec.algorithm or "ppo"
    if algorithm not in models.ALGORITHMS:
        raise InvalidArgument(field="algorithm", value=algorithm, expected=" or ".join(models.ALGORITHMS))
    # The simulator's threads are native; more threads of torch gain nothing on such small networks.
    torch.set_num_threads(1)
    members = member_specs(setup.spec)
    if algorithm == "sac":
        check_memory(setup, members)
    groups = [Sb3Group(setup, member, algorithm, make_batch=make_batch) for member in members]
    begin_or_resume(groups, resumed)
    return groups


class _Streams:
    """The process-wide generators that SB3 draws from, kept apart for each member."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.numpy: Any = np.random.get_state()
        self.python = random.getstate()

    def enter(self) -> None:
        torch.set_rng_state(self.torch)
        np.random.set_state(self.numpy)
        random.setstate(self.python)

    def leave(self) -> None:
        self.torch, self.numpy, self.python = torch.get_rng_state(), np.random.get_state(), random.getstate()


class Sb3Group:
    """Trains one member with Stable-Baselines3, as `group.TrainedGroup`."""

    def __init__(
        self,
        setup: MemberSetup,
        member: MemberSpec,
        algorithm: str,
        *,
        make_batch: Callable[..., Any],
    ) -> None:
        self._setup, self._member, self._algorithm = setup, member, algorithm
        self.names = [member.name]
        self.updates = 0
        self.stops: list[Stop] = []
        h, spec = member.hyperparameters, setup.spec
        self._batch = self._new_batch(make_batch)
        self._env = self._make_env()
        self._normalizer: Any = StoppingNormalizer(
            self._env,
            norm_obs=h.normalize_observation,
            norm_reward=h.normalize_reward,
            clip_obs=h.observation_clip,
            clip_reward=h.reward_clip,
            gamma=h.discount,
            epsilon=EPSILON,
        )
        self._model: Any = models.make_model(h, self._normalizer, seed=member.seed, steps=spec.last_step)
        self._streams = _Streams()
        self._set_up()
        self._chunk = models.chunk_steps(h)
        self._monitor = Monitor(steps=spec.steps_per_member)
        self._divergences = 0
        self._latest: Row = {}
        self._metrics: MemberMetrics | None = None

    def _new_batch(self, make_batch: Callable[..., Any]) -> Any:
        setup, spec = self._setup, self._setup.spec
        batch = make_batch(
            spec.environment,
            self._member.hyperparameters.num_envs,
            num_threads=spec.threads,
            options=setup.options,
            fields=fields_read(spec.reward_source, setup.module, setup.card),
        )
        check_actions(self._algorithm, batch)
        return seen_by_networks(batch, self._member.hyperparameters)

    def _make_env(self) -> RewardedVecEnv:
        setup, h = self._setup, self._member.hyperparameters
        reward = WatchedReward(setup.module, setup.card, h.num_envs, on_not_finite="return")
        return RewardedVecEnv(
            self._batch,
            reward,
            member_streams(self._member.seed, h.num_envs).env_seeds,
            # SB3 keeps rewards in single precision; normalised ones fit.
            reward_dtype=np.float64 if h.normalize_reward else np.float32,
        )

    def begin(self) -> None:
        """Open the metrics of a new run."""
        self._open_metrics(b"")

    def _set_up(self) -> None:
        """Prepare SB3's learning, so that a snapshot can be taken before the first update."""
        self._model._setup_learn(0, None, reset_num_timesteps=True)
        self._streams.leave()

    @property
    def steps(self) -> int:
        """Environment steps of the member; if it was stopped, those until then."""
        return self.stops[0].step if self.stops else int(self._model.num_timesteps)

    @property
    def all_stopped(self) -> bool:
        """Whether the member cannot continue."""
        return bool(self.stops)

    def advance(self, *, began: float) -> Outcome:
        """Train and write the metrics. PPO: one rollout and update. SAC: about 1,000 steps with as many gradient steps."""
        outcome, start, before = Outcome(), time.perf_counter(), self.steps
        models.forget_figures(self._model)
        stop = self._learn()
        self.updates += 1
        models.adapt_rate(self._model, self._member.hyperparameters)
        if stop is None and self._broken():
            stop = self._gradient_stop(f"after update {self.updates}")
        if stop is not None:
            self._stop(stop, outcome)
        rate = (self.steps - before) / max(time.perf_counter() - start, 1e-9)
        row: Row = {"update": float(self.updates), "step": float(self.steps), "steps_per_second": rate}
        row |= self._env.episodes.take()[0] | models.figures(self._model)
        row["seconds"] = time.monotonic() - began
        self._latest = row
        assert self._metrics is not None
        self._metrics.add(row)
        # The figures of a member as it breaks mean nothing.
        for warn in [] if self.stops else self._monitor.see(row):
            outcome.warnings.append(WarningMessage(warn.reason, warn.message, self._member.name))
        divergences, self._divergences = self._divergences, self._batch.divergences
        outcome.warnings.extend(divergence_warnings(divergences, self._divergences, member=self._member.name))
        return outcome

    def _learn(self) -> Stop | None:
        """Train one chunk; return why the member cannot continue, if it cannot."""
        self._streams.enter()
        try:
            self._model.learn(self._chunk, reset_num_timesteps=False, log_interval=None)
        except MemberStopped as stopped:
            return stopped.stop
        except ValueError as error:
            # With this error torch refuses the action distribution of a broken network; its deviation may be 0 with finite
            # weights.
            if not self._broken() and "distribution" not in str(error):
                raise
            return self._gradient_stop(f"in update {self.updates + 1}")
        finally:
            self._streams.leave()
        return None

    def _gradient_stop(self, when: str) -> Stop:
        what = "weights were not finite" if self._broken() else "distribution of actions was not valid"
        message = f"the {what} {when} (environment step {self.steps})"
        return Stop(0, self.steps, "gradient", "", message)

    def _broken(self) -> bool:
        return any(not torch.isfinite(value).all() for value in self._model.policy.parameters())

    def _stop(self, stop: Stop, outcome: Outcome) -> None:
        self.stops.append(stop)
        outcome.stopped.append(stopped_message(self._member.name, stop))

    def states(self) -> list[MemberState]:
        """Return the member's latest metrics."""
        metrics = {key: value for key, value in self._latest.items() if value is not None}
        return [MemberState(member=self._member.name, env_step=self.steps, metrics=metrics)]

    def policies(self) -> list[MemberPolicy]:
        """Return the member's current policy; none once it was stopped."""
        if self.stops:
            return []
        h, card = self._member.hyperparameters, self._policy_card()
        size, rms = self._batch.observation_size, self._normalizer.obs_rms if h.normalize_observation else None
        weights = models.tensors(self._model, card)
        weights["obs_mean"] = np.zeros(size) if rms is None else np.array(rms.mean, np.float64)
        weights["obs_var"] = np.ones(size) if rms is None else np.array(rms.var, np.float64)
        whole = widen(weights, card.observation_size)
        return [MemberPolicy(self._member.name, self.steps, card.to_dict(), whole)]

    def _policy_card(self) -> PolicyCard:
        h, returns = self._member.hyperparameters, self._normalizer.ret_rms
        count = self._normalizer.obs_rms.count if h.normalize_observation else 0.0
        return PolicyCard(
            environment=self._setup.card.id,
            observation_size=self._setup.card.observation_size,
            **action_facts(self._env.environment),
            **models.network(self._algorithm),
            hidden_sizes=h.hidden_sizes,
            normalize_observation=h.normalize_observation,
            epsilon=EPSILON,
            clip=h.observation_clip,
            environment_options=dict(self._setup.options.overrides()),
            statistics={
                "obs_count": float(count),
                "return_mean": float(returns.mean),
                "return_var": float(returns.var),
                "return_count": float(returns.count),
                "discount": h.discount,
                "reward_clip": h.reward_clip,
            },
            provenance={
                **self._setup.spec.provenance,
                "member": self._member.name,
                "seed": self._member.seed,
                "env_steps": self.steps,
                "algorithm": self._algorithm,
                "backend": "sb3",
                "hyperparameters": h.to_dict(),
                "versions": versions_of(*_PACKAGES),
            },
        )

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with to be resumed."""
        return facts_of(self._setup, [self._member], backend="sb3", algorithm=self._algorithm)

    def snapshot(self) -> Arrays:
        """Return the state at this update boundary, with metrics and the filled part of SAC's replay buffer."""
        assert self._metrics is not None
        file = io.BytesIO()
        self._model.save(file)
        state = {
            "streams": (self._streams.torch, self._streams.numpy, self._streams.python),
            "normalizer": {name: getattr(self._normalizer, name) for name in self._normalizer_parts()},
            # SAC's first actions come from the space's generator, which a load seeds again.
            "exploration": self._model.action_space.np_random.bit_generator.state,
            "updates": self.updates,
            "stops": self.stops,
        }
        rest = io.BytesIO()
        torch.save(state, rest)
        return {
            "model": np.frombuffer(file.getvalue(), np.uint8),
            "state": np.frombuffer(rest.getvalue(), np.uint8),
            "metrics": self._metrics.to_bytes(),
            **{f"env/{name}": value for name, value in self._env.snapshot().items()},
            **models.replay_arrays(self._model),
        }

    def _normalizer_parts(self) -> list[str]:
        parts = ["ret_rms", "returns", "old_obs", "old_reward"]
        return [*parts, "obs_rms"] if self._member.hyperparameters.normalize_observation else parts

    def restore(self, arrays: Arrays) -> None:
        """Continue from a snapshot. This unpickles, so call it inside the sandbox only."""
        model = io.BytesIO(np.asarray(arrays["model"], np.uint8).tobytes())
        self._model = models.load_model(self._model, model, self._normalizer, buffer=self._buffer_size(arrays))
        rest = io.BytesIO(np.asarray(arrays["state"], np.uint8).tobytes())
        state = torch.load(rest, weights_only=False)
        self._streams.torch, self._streams.numpy, self._streams.python = state["streams"]
        for name, value in state["normalizer"].items():
            setattr(self._normalizer, name, value)
        self._model.action_space.np_random.bit_generator.state = state["exploration"]
        self.updates, self.stops = state["updates"], list(state["stops"])
        start = "env/"
        self._env.restore({n[len(start) :]: value for n, value in arrays.items() if n.startswith(start)})
        self._divergences = self._batch.divergences
        models.fill_replay(self._model, arrays)
        self._open_metrics(np.asarray(arrays["metrics"], np.uint8).tobytes())

    def _buffer_size(self, arrays: Arrays) -> int:
        """Return the size of SAC's replay buffer: what the run needs, and at least what was stored (by a longer run)."""
        h = self._member.hyperparameters
        transitions = len(arrays.get("replay/rewards", ())) * h.num_envs
        needed = h.buffer_size(self._setup.spec.last_step) if isinstance(h, SacHyperparameters) else 0
        return max(needed, transitions)

    def _open_metrics(self, earlier: bytes) -> None:
        folder = self._setup.root / "members" / self._member.name
        self._metrics = MemberMetrics(folder, earlier=earlier)
        for row in self._metrics.rows():
            self._monitor.see(row)

    def close(self) -> None:
        """Close the metrics files."""
        if self._metrics is not None:
            self._metrics.close()
