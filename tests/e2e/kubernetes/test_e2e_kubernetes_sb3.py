"""A pool with a separate image: Stable-Baselines3's PPO and SAC compared with the stacked PPO."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as pb

from tests.e2e.kubernetes.installation import SB3_IMAGE, Installation
from tests.e2e.kubernetes.trainings import ended, pods, training

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not SB3_IMAGE, reason="needs DRESSAGE_E2E_SB3_IMAGE: NAMES=trainer-sb3 make images"),
]


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_pool_trains_with_stable_baselines3(installed: Installation, algorithm: str) -> None:
    with installed.client() as client:
        spec = training(6_000, pool="sb3", backend="sb3", algorithm=algorithm)
        session = client.create_session(spec, session_id=f"sb3-{algorithm}").name.removeprefix("sessions/")
    final = ended(installed, session, seconds=1500)
    assert final.state == pb.SESSION_STATE_SUCCEEDED, f"{final.failure}\n{installed.space.diagnosis()}"
    assert final.best_policy
    (pod,) = pods(installed, session)
    assert pod["spec"]["containers"][0]["image"] == SB3_IMAGE
