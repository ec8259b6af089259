"""One member trained twice, by `dressage_trainer.ppo.ppo.PPO` and by Stable-Baselines3's own `PPO.learn` under `VecNormalize`.

Both start from the same weights and have the same environments, noise and minibatch orders: what then differs is rounding,
which trainings magnify from update to update, or an error.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dressage.contracts.reward import BatchReward, load_reward
from dressage.envs import EnvOptions, make_batch
from dressage.envs.cards import load_card
from dressage.policies import Policy, PolicyCard
from dressage.training.hyperparameters import Hyperparameters
from dressage_trainer.backends.group import action_facts
from dressage_trainer.backends.sb3.models import make_model
from dressage_trainer.backends.sb3.vecenv import RewardedVecEnv
from dressage_trainer.ppo import snapshot
from dressage_trainer.ppo.members import MemberSpec, member_streams
from dressage_trainer.ppo.ppo import PPO
from dressage_trainer.speed.lanes import PpoLanes
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize

_TORCH_NAMES = {
    "pi.0": "mlp_extractor.policy_net.0",
    "pi.1": "mlp_extractor.policy_net.2",
    "vf.0": "mlp_extractor.value_net.0",
    "vf.1": "mlp_extractor.value_net.2",
    "action": "action_net",
    "value": "value_net",
}
_COLLECTOR = "collector/"


def torch_name(name: str) -> str:
    """SB3's name of a weight of ours."""
    layer, _, kind = name.rpartition(".")
    return f"{_TORCH_NAMES[layer]}.{kind}" if layer else name


_Steps = list[tuple[dict[str, np.ndarray], np.ndarray]]


class _Linked:
    """An environment that keeps its state before every step in ``steps``, and the actions, or takes every step from the next
    ones there. How far its own actions are from these is kept: a step of the simulator may magnify rounding to 1e-3, since the
    solver of contacts stops at a tolerance."""

    def __init__(self, environment: Any, steps: _Steps, *, leads: bool) -> None:
        self._environment, self._steps, self._leads = environment, steps, leads
        self.largest_difference = 0.0

    def step(self, actions: np.ndarray) -> Any:
        if self._leads:
            self._steps.append((self._environment.snapshot(), actions.copy()))
            return self._environment.step(actions)
        state, taken = self._steps.pop(0)
        self.largest_difference = max(self.largest_difference, float(np.abs(actions - taken).max()))
        self._environment.restore(state)
        return self._environment.step(taken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


class Twin:
    """Both trainings of one member.

    :param patch: changes SB3's modules, for as long as the test lasts.
    :param follow: SB3's environments take each step from the state of ours, with our actions: contacts magnify rounding
        within a rollout beyond all bounds. `largest_action_difference` is the distance of its own actions from these.
    :param dtype: of both; float32 as trainings are run, or float64.
    """

    def __init__(
        self,
        environment: str,
        reward: str,
        h: Hyperparameters,
        options: EnvOptions,
        seed: int,
        patch: pytest.MonkeyPatch,
        *,
        follow: bool = False,
        dtype: Any = np.float64,
    ) -> None:
        card = load_card(environment)
        module = load_reward(reward, card)

        def surroundings() -> tuple[Any, Any]:
            batch = make_batch(environment, h.num_envs, num_threads=1, options=options)
            return batch, BatchReward(module, card, h.num_envs)

        torch.set_num_threads(1)
        self._environment, self._h, self._dtype = environment, h, dtype
        self._streams = member_streams(seed, h.num_envs)
        steps: _Steps = []
        batch, terms = surroundings()
        if follow:
            batch = _Linked(batch, steps, leads=True)
        members = [MemberSpec("m", h, seed)]
        lanes = PpoLanes(members, environment=batch, threads=1, dtype=dtype)
        self.ours = PPO(members, environment=batch, reward=terms, optimise=lanes, dtype=dtype)
        self._noise: list[np.ndarray] = []
        self._orders: list[np.ndarray] = []
        self._use_our_chance(patch)
        other, terms = surroundings()
        self._linked = _Linked(other, steps, leads=False) if follow else None
        self._env = RewardedVecEnv(self._linked or other, terms, self._streams.env_seeds)
        if dtype == np.float64:
            self._env.observation_space = spaces.Box(-np.inf, np.inf, self._env.observation_space.shape, np.float64)
            box: Any = self._env.action_space
            self._env.action_space = spaces.Box(box.low.astype(float), box.high.astype(float), dtype=np.float64)
        self.normalizer = VecNormalize(
            self._env,
            norm_obs=h.normalize_observation,
            norm_reward=h.normalize_reward,
            clip_obs=h.observation_clip,
            clip_reward=h.reward_clip,
            gamma=h.discount,
        )
        self.model: Any = make_model(h, self.normalizer, seed=0)
        if dtype == np.float64:
            self.model.policy.double()
        self._load_weights(snapshot.take(self.ours))

    def _use_our_chance(self, patch: pytest.MonkeyPatch) -> None:
        """SB3 draws from torch's and numpy's process-wide generators, and casts to float32 in three places."""
        random = types.SimpleNamespace(permutation=self._order)
        numpy = types.SimpleNamespace(**{**vars(np), "float32": self._dtype, "random": random})
        patch.setattr("stable_baselines3.common.vec_env.vec_normalize.np", numpy)
        patch.setattr("stable_baselines3.common.buffers.np", numpy)
        if self._dtype == np.float64:
            patch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda obs, *rest, **options: obs)
        patch.setattr(
            "torch.distributions.normal._standard_normal", lambda *_, **__: torch.as_tensor(self._noise.pop(0))
        )

    def _draw(self) -> None:
        """What an update's chance will be. We draw for all epochs, also where KL stops before the last."""
        h = self._h
        self._noise = list(
            self._streams.noise.standard_normal(
                (h.num_steps, h.num_envs, *self._env.action_space.shape), dtype=self._dtype
            )
        )
        self._orders = [self._streams.order.permutation(h.batch_size) for _ in range(h.epochs)]

    def _order(self, size: int) -> np.ndarray:
        """SB3 flattens environment by environment, we step by step."""
        ours = self._orders.pop(0)
        assert len(ours) == size
        order: np.ndarray = ours % self._h.num_envs * self._h.num_steps + ours // self._h.num_envs
        return order

    def advance(self) -> None:
        """One rollout and update of each."""
        self.ours.iterate()
        self._draw()
        self.model.learn(self._h.batch_size, reset_num_timesteps=False, log_interval=None)
        assert not self._noise

    def difference(self) -> float:
        """The largest difference between the two in weights, Adam's moments, normalisers and the observations that stand."""
        state = snapshot.take(self.ours)
        policy = dict(self.model.policy.named_parameters())
        moments = self.model.policy.optimizer.state
        pairs = [(state[f"{_COLLECTOR}current"][0], self.model._last_obs)]
        for part, theirs in self._statistics():
            pairs += [
                (state[f"{_COLLECTOR}{part}/{name}"][0], getattr(theirs, name)) for name in ("mean", "var", "count")
            ]
        if self._h.normalize_reward:
            pairs.append((state[f"{_COLLECTOR}returns/returns"][0], self.normalizer.returns))
        for name in self._names(state):
            weight = policy[torch_name(name)]
            pairs += [
                (state[f"weights/{name}"][0], weight.detach().numpy()),
                (state[f"adam/first/{name}"][0], moments[weight]["exp_avg"].numpy()),
                (state[f"adam/second/{name}"][0], moments[weight]["exp_avg_sq"].numpy()),
            ]
        return float(np.max([np.abs(one - other).max() for one, other in pairs]))  # NaN if there is one

    @property
    def largest_action_difference(self) -> float:
        """Between the two in all steps so far, where SB3's environments follow."""
        assert self._linked is not None
        return self._linked.largest_difference

    def our_policy(self) -> Callable[[np.ndarray], np.ndarray]:
        """Our deterministic policy, from (n, D) observations to (n, A) actions."""
        card = PolicyCard(
            environment=self._environment,
            observation_size=self._env.environment.observation_size,
            **action_facts(self._env.environment),
            hidden_sizes=self._h.hidden_sizes,
            normalize_observation=self._h.normalize_observation,
            clip=self._h.observation_clip,
        )
        return Policy(weights=snapshot.policy_arrays(self.ours, 0), card=card).act

    def sb3_policy(self) -> Callable[[np.ndarray], np.ndarray]:
        """SB3's, by its own `predict`."""

        def act(observation: np.ndarray) -> np.ndarray:
            actions: np.ndarray = self.model.predict(self.normalizer.normalize_obs(observation), deterministic=True)[0]
            return actions

        return act

    def _statistics(self) -> list[tuple[str, Any]]:
        """SB3's running moments, by the name that ours have in a snapshot."""
        statistics = []
        if self._h.normalize_observation:
            statistics.append(("observations", self.normalizer.obs_rms))
        if self._h.normalize_reward:
            statistics.append(("returns", self.normalizer.ret_rms))
        return statistics

    def _load_weights(self, state: dict[str, np.ndarray]) -> None:
        theirs = self.model.policy.state_dict()
        for name in self._names(state):
            theirs[torch_name(name)].copy_(torch.as_tensor(state[f"weights/{name}"][0]))

    @staticmethod
    def _names(state: dict[str, np.ndarray]) -> list[str]:
        return [name.removeprefix("weights/") for name in state if name.startswith("weights/")]


def train_pair(
    environment: str, reward: str, h: Hyperparameters, seed: int, *, steps: int
) -> tuple[dict[str, Any], list[float], list[float]]:
    """Train one seed by both, in single precision, with the same random numbers.

    :returns: the policies by backend, and the largest differences after each update: of anything that both keep (see
        `Twin.difference`), and of the actions in all steps until then.
    """
    state, actions = [], []
    with pytest.MonkeyPatch.context() as patch:
        twin = Twin(environment, reward, h, EnvOptions(), seed, patch, follow=True, dtype=np.float32)
        while twin.ours.env.steps < steps:
            twin.advance()
            state.append(twin.difference())
            actions.append(twin.largest_action_difference)
        return {"jax": twin.our_policy(), "sb3": twin.sb3_policy()}, state, actions
