"""Small environments of this project as Gymnasium's, registered by importing this module.

``gymnasium.make("dressage.envs.small:Nim-v0")`` imports and makes one; `dressage.envs.stock` does the same. No id is one of
Gymnasium's or of ``ale-py``'s. The rules of each are in its folder of `dressage.envs.catalogue`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dressage.envs.rules import RULED_IDS, OwnRules, no_number, rules_of


class SmallEnv(gymnasium.Env[Any, Any]):
    """Runs an environment's rules as plain Python.

    The random numbers are ``self.np_random.random()`` only, a fixed number at reset and a fixed number in every step, so that a
    batch can draw the numbers of a seed in advance.

    :param env_id: one of `OWN`.
    """

    metadata = {"render_modes": []}

    def __init__(self, env_id: str) -> None:
        self._rules = rules = OWN[env_id]
        self._discrete = rules.number is not no_number
        self._state = [0.0] * rules.state_size
        self.action_space = spaces.Discrete(rules.num_actions)
        if self._discrete:
            self.observation_space = spaces.Discrete(rules.observation_size)
        else:
            self.observation_space = spaces.Box(np.array(rules.low, np.float32), np.array(rules.high, np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._rules.start(self._state, self._rules.first_draws(self.np_random))
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do a step; the time limit is Gymnasium's."""
        rules = self._rules
        # All numbers of a step are drawn, used or not, so that a batch can draw an episode's ahead (decision 0074).
        draws = self.np_random.random(rules.draws_per_step) if rules.draws_per_step else ()
        reward, ended = rules.step(self._state, int(action), None, draws, 0)
        return self._observation(), float(reward), bool(ended), False, {}

    def _observation(self) -> Any:
        if self._discrete:
            return self._rules.number(self._state)
        observation = np.empty(self._rules.observation_size, np.float32)
        self._rules.observe(self._state, observation)
        return observation


OWN = {env_id: rules for env_id in RULED_IDS if isinstance(rules := rules_of(env_id), OwnRules)}
"""The rules of this project's environments, by id."""


def register() -> None:
    """Register the environments that are not registered yet."""
    for env_id, rules in OWN.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point=f"{__name__}:{SmallEnv.__name__}",
                max_episode_steps=rules.max_episode_steps,
                reward_threshold=rules.target,
                kwargs={"env_id": env_id},
            )


register()
