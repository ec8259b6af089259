"""As test_envs_full_episodes.py, for robots whose observation holds contact forces.

An episode of these takes as long as several of the others, so `make test` compares 8 episodes and `make test-slow` all 20.
"""

from __future__ import annotations

import pytest

from tests.unit.envs.stock_twin import EPISODES, OBSERVE_CONTACTS, PARAMETERS, compare_full_episodes


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("episodes", [8, pytest.param(EPISODES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("env_id", OBSERVE_CONTACTS)
def test_full_episodes_with_contact_forces_equal_stock_gymnasium(env_id: str, kind: str, episodes: int) -> None:
    compare_full_episodes(env_id, kind, episodes=episodes)
