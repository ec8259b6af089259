"""Bad input and hostile rewards against the real stack: each ends in a clear error, nothing hangs, nothing else dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client
from serving import Server

from tests.fakes.specs import reward_session

TERMS = 'LATEX = "x"\nTERMS = {"a": "a"}\n'
BODY = "def reward(state, action, next_state, memory, np):\n"

HOSTILE = {
    "syntax": (TERMS + "def reward(state, action, next_state, memory, np)\n    return {}\n", "line 3"),
    "endless": (TERMS + BODY + "    while True:\n        pass\n", "time"),
    "wrong-shape": (TERMS + BODY + '    return {"a": next_state.x_velocity.sum()}\n', "shape"),
    "nan": (TERMS + BODY + '    return {"a": next_state.x_velocity * np.nan}\n', "finite"),
    "import-os": ("import os\n" + TERMS + BODY + '    return {"a": next_state.x_velocity}\n', "import"),
    "socket": (
        TERMS + BODY + '    import socket\n    socket.socket()\n    return {"a": next_state.x_velocity}\n',
        "import",
    ),
    "fork": (TERMS + BODY + '    __import__("os").fork()\n    return {"a": next_state.x_velocity}\n', "__import__"),
    "memory": (TERMS + BODY + '    b = bytearray(20_000_000_000)\n    return {"a": next_state.x_velocity}\n', ""),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Server(tmp_path_factory.mktemp("hostile") / "data") as server, server.client() as connected:
        yield connected


def _spec(**changes: object) -> pb.SessionSpec:
    values: dict[str, object] = {"intent": "run forward", "environment": "environments/HalfCheetah-v5"}
    return reward_session(**{**values, **changes})


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_reward_fails_its_session_with_what_and_where(client: Client, name: str):
    source, expected = HOSTILE[name]
    session = client.create_session(_spec(reward_source=source, train_only=True, seeds=1), session_id=f"h-{name}")
    ended = client.wait_session(session.name)
    assert ended.state == pb.SESSION_STATE_FAILED
    assert expected in ended.failure.message
    assert "Traceback" not in ended.failure.message


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"environment": "environments/HalfCheeta-v5"}, "HalfCheetah-v5"),
        ({"intent": ""}, "spec.intent"),
        ({"intent": "   "}, "intent"),
        ({"intent": "x" * 100_000}, "spec.intent"),
        ({"steps_per_member": -1}, "spec.reward.steps_per_member"),
        ({"model": "nobody/nothing-9"}, "model"),
        ({"seeds": 1000}, "spec.reward.seeds"),
    ],
)
def test_bad_input_names_the_field_and_what_would_be_right(client: Client, changes: dict[str, object], field: str):
    with pytest.raises((errors.InvalidArgument, errors.NotFound)) as caught:
        client.create_session(_spec(**changes))
    assert field in f"{getattr(caught.value, 'field', '')} {caught.value.message}"


def test_the_server_continues_after_hostile_code(client: Client):
    session = client.create_session(_spec(reward_source=HOSTILE["memory"][0], train_only=True, seeds=1))
    assert client.wait_session(session.name).state == pb.SESSION_STATE_FAILED
    assert any(True for _ in client.list_environments())
    assert session.name in [listed.name for listed in client.list_sessions()]
