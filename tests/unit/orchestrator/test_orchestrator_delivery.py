"""The delivery of a session's best policy: a video only where one can be drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage_orchestrator.lifecycle.delivery import deliver
from dressage_orchestrator.lifecycle.method import Deliverable


class Context:
    """A session whose steps run at once; it records their names."""

    def __init__(self, environment: str) -> None:
        self.session, self.card, self.steps = "s", load_card(environment), []
        self.store = SimpleNamespace(
            get=v1.Session,
            members=lambda assignment: [],
            update=lambda *_: None,
            emit=lambda *_, **__: None,
            record_video=lambda *_, **__: None,
        )
        self.engine = SimpleNamespace(renderer=SimpleNamespace(render=lambda request: request))

    def step(self, name: str, function: Any, *, final: bool = False) -> Any:
        self.steps.append(name)
        return function()

    def call(self, request: Any) -> None:
        assert request.trajectory == "t"


@pytest.mark.parametrize(
    ("environment", "drawn"),
    [("Hopper-v5", True), ("CartPole-v1", False), ("Nim-v0", False), ("FrozenLake-v1", False)],
)
def test_a_video_is_made_where_the_environment_can_be_drawn(environment: str, drawn: bool) -> None:
    best = Deliverable(policy="p", iteration=1, member="m", env_step=3, rollout="t")
    context = Context(environment)
    deliver(context, SimpleNamespace(deliverable=lambda: best))  # type: ignore[arg-type]
    assert context.steps == ["deliver:choose", "deliver:policy", *(["deliver:video"] if drawn else [])]
