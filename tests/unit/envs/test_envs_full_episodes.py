"""The batch against stock Gymnasium over 20 full episodes for each kind of action.

Compared are observation, reward, ends, info, auto-reset and final observation of every step.
"""

from __future__ import annotations

import pytest
from dressage.envs import REWARD_ENVIRONMENT_IDS

from tests.unit.envs.stock_twin import OBSERVE_CONTACTS, PARAMETERS, compare_full_episodes


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("env_id", [env_id for env_id in REWARD_ENVIRONMENT_IDS if env_id not in OBSERVE_CONTACTS])
def test_full_episodes_equal_stock_gymnasium(env_id: str, kind: str) -> None:
    compare_full_episodes(env_id, kind)
