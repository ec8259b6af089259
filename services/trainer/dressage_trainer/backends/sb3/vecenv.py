"""A batched environment with a generated reward, as Stable-Baselines3's `VecEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from dressage_trainer.ppo.distributions import action_space_of
from dressage_trainer.ppo.episodes import EpisodeStatistics
from dressage_trainer.ppo.faults import Stop
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward


class MemberStopped(Exception):
    """A reward or observation was not finite, or too large for the statistics, so the member cannot continue."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop


class RewardedVecEnv(VecEnv):
    """Steps all environments with one call of simulator and reward; SB3 also requires a list of infos.

    :param seeds: one for each environment, for the first reset.
    :param reward_dtype: type in which rewards are learned from; one beyond its range counts as not finite.
    """

    def __init__(
        self, environment: Environment, reward: Reward, seeds: Sequence[int], *, reward_dtype: Any = np.float64
    ) -> None:
        self.environment, self.reward = environment, reward
        self._reward_dtype = reward_dtype
        self.steps_done = 0
        self.render_mode = None  # SB3 reads it
        self.episodes = EpisodeStatistics(1, environment.num_envs)
        self._seeds_given = list(seeds)
        self._actions = np.zeros(0)
        self._infos: list[dict[str, Any]] = [{} for _ in range(environment.num_envs)]
        size = environment.observation_size
        space = action_space_of(environment)
        self._discrete = space.discrete
        actions: spaces.Space[Any] = (
            spaces.Discrete(space.outputs)
            if space.discrete
            else spaces.Box(np.asarray(environment.action_low), np.asarray(environment.action_high), dtype=np.float32)
        )
        super().__init__(environment.num_envs, spaces.Box(-np.inf, np.inf, (size,), np.float32), actions)

    def reset(self) -> np.ndarray:
        """Reset every environment, from the same seeds."""
        self.reward.reset(None)
        return self.environment.reset(self._seeds_given)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions: (n, A), clipped by SB3, or (n,) discrete ones."""
        self._actions = actions.reshape(self.num_envs).astype(np.int64) if self._discrete else actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step; infos contain what SB3 reads: the final observation and whether the time limit cut the episode.

        :raises MemberStopped: for a reward or observation that is not finite.
        """
        step = self.environment.step(self._actions)
        output = self.reward(step.state, self._actions, step.next_state)
        self.steps_done += self.num_envs
        self._check(step.observation, output)
        done = step.terminated | step.truncated
        self.episodes.add(output.total[None], output.terms, step.reward, done if done.any() else None)
        infos = self._infos
        if done.any():
            self.reward.reset(done)
            infos = [{} for _ in range(self.num_envs)]
            for row in np.flatnonzero(done):
                cut = bool(step.truncated[row] and not step.terminated[row])
                infos[row] = {"terminal_observation": step.final_observation[row], "TimeLimit.truncated": cut}
        return step.observation, output.total, done, infos

    @np.errstate(over="ignore", invalid="ignore")
    def _check(self, observation: np.ndarray, output: Any) -> None:
        if np.isfinite(output.total.astype(self._reward_dtype).sum()) and np.isfinite(observation.sum()):
            return
        # A sum is fast, but may overflow although all its values are finite.
        reward_broken, observation_broken = not self._holds(output.total), not np.isfinite(observation).all()
        if not reward_broken and not observation_broken:
            return
        cause = "reward" if reward_broken else "observation"
        raised = list(output.raised.values())
        broken = [name for name, value in output.terms.items() if not self._holds(value)]
        term = (broken[0] if broken and not raised else "total") if reward_broken else ""
        what = f"reward term {term!r}" if term else cause
        why = f": the reward raised {raised[0]}" if raised else ""
        message = f"{what} was not finite at environment step {self.steps_done}{why}"
        raise MemberStopped(Stop(member=0, step=self.steps_done, cause=cause, term=term, message=message))

    def _holds(self, rewards: Any) -> bool:
        return bool(np.isfinite(np.asarray(rewards).astype(self._reward_dtype)).all())

    def snapshot(self) -> Arrays:
        """Return the state of environments, episodes and the reward's memory."""
        parts = {
            "environment": self.environment.snapshot(),
            "reward": self.reward.snapshot(),
            "episodes": self.episodes.arrays(),
        }
        flat = {f"{part}/{name}": np.array(v) for part, arrays in parts.items() for name, v in arrays.items()}
        return {**flat, "steps_done": np.array(self.steps_done)}

    def restore(self, arrays: Arrays) -> None:
        """Continue from a snapshot."""

        def part(prefix: str) -> Arrays:
            start = f"{prefix}/"
            return {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}

        self.environment.restore(part("environment"))
        self.reward.restore(part("reward"))
        self.episodes.load(part("episodes"))
        self.steps_done = int(arrays["steps_done"])

    def close(self) -> None:
        """Nothing to release."""

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Ignored: the environments' seeds were given at construction."""
        return [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the attribute of this object, once for each of these environments."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not supported: the environments are rows of one batch."""
        raise NotImplementedError("rows of a batch have no attributes of their own")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Not supported: the environments are rows of one batch."""
        raise NotImplementedError("rows of a batch have no methods of their own")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False: rows of a batch are not wrapped."""
        return [False] * len(list(self._get_indices(indices)))


class StoppingNormalizer(VecNormalize):
    """`VecNormalize` that stops a member whose running variance overflows: all normalised values would be 0 from then on."""

    def step_wait(self) -> Any:
        """Step all environments, normalised as `VecNormalize` does.

        :raises MemberStopped: for a variance that is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            stepped = super().step_wait()
        if self.norm_reward and not np.isfinite(self.ret_rms.var):
            self._stop("reward", "returns", self.old_reward)
        if self.norm_obs:
            moments: Any = self.obs_rms  # SB3 has no such attribute otherwise
            if not np.isfinite(moments.var).all():
                self._stop("observation", "observations", self.old_obs)
        return stepped

    def _stop(self, cause: str, what: str, values: Any) -> None:
        (step,) = self.venv.get_attr("steps_done", [0])
        text = f"the running variance of {what} overflowed at environment step {step}"
        message = f"{text}, where the largest |{cause}| was {np.abs(values).max():.3g}"
        raise MemberStopped(Stop(member=0, step=step, cause=cause, term="", message=message))
