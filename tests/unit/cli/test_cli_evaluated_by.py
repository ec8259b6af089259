"""`dressage eval` names what played the episodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dressage.cli.policies import _simulator
from dressage.envs.cards import load_card


@pytest.mark.parametrize(
    ("env_id", "changes", "expected"),
    [
        ("Hopper-v5", {}, "stock Gymnasium"),
        ("Hopper-v5", {"id": "gymnasium:my_envs:Cart-v0"}, "your module my_envs"),
        ("Hopper-v5", {"id": "gymnasium:Pendulum-v1"}, "the environment registered with Gymnasium"),
        ("Hopper-v5", {"id": "mjcf:dog"}, "your model in MuJoCo"),
        ("Glucose-adolescent2-v0", {}, "the environment pack glucose"),
        ("karel/Maze", {}, "the engine of programs"),
    ],
)
def test_eval_names_what_played_the_episodes(env_id: str, changes: dict[str, str], expected: str) -> None:
    assert _simulator(replace(load_card(env_id), **changes)) == expected
