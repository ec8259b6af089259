"""As test_envs_full_episodes.py, for robots whose observation holds contact forces.

They take as long as all others together: in a file of their own another worker can take them.
"""

from __future__ import annotations

import pytest

from tests.unit.envs.stock_twin import OBSERVE_CONTACTS, PARAMETERS, compare_full_episodes


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("env_id", OBSERVE_CONTACTS)
def test_full_episodes_with_contact_forces_equal_stock_gymnasium(env_id: str, kind: str) -> None:
    compare_full_episodes(env_id, kind)
