"""Environments of a pack: a pool with the pack's image plays them; the default image names what is missing."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as pb

from tests.e2e.kubernetes.installation import METAWORLD_IMAGE, Installation
from tests.e2e.kubernetes.provider import Provider
from tests.e2e.kubernetes.trainings import ended, pods

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not METAWORLD_IMAGE, reason="needs DRESSAGE_E2E_METAWORLD_IMAGE, built by services/trainer/Dockerfile.pack"
    ),
]


def button_press(pool: str) -> pb.SessionSpec:
    return pb.SessionSpec(
        intent="press the button",
        environment="environments/metaworld-button-press-v3",
        model="openai/scripted",
        pool=pool,
        max_iterations=1,
        code=pb.CodeSpec(candidates=2, episodes=1, report_episodes=2),
    )


def test_a_pool_plays_the_environments_of_its_images_pack(installed: Installation) -> None:
    Provider(installed.space, "search.py").start()
    with installed.client() as client:
        client.create_session(button_press("metaworld"), session_id="pack")
    final = ended(installed, "pack", seconds=1500)
    assert final.state == pb.SESSION_STATE_EXHAUSTED, f"{final.failure}\n{installed.space.diagnosis()}"
    assert final.best_policy and len(final.report.returns) == 2 and final.candidates == 2
    (pod,) = pods(installed, "pack")
    assert pod["spec"]["containers"][0]["image"] == METAWORLD_IMAGE


def test_an_image_without_the_pack_is_named_as_the_cause(installed: Installation) -> None:
    Provider(installed.space, "search.py").start()
    with installed.client() as client:
        client.create_session(button_press("cpu"), session_id="no-pack")
    final = ended(installed, "no-pack", seconds=600)
    assert final.state == pb.SESSION_STATE_FAILED and "metaworld" in final.failure.message, final
