"""Environments of the user's own module: described in a sandboxed process, and imported in no other."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from dressage.cli.main import invoke
from dressage.envs import custom
from dressage.envs.cards import load_card
from dressage.envs.options import EnvOptions
from dressage.envs.vector import SANDBOXED, VectorBatch, make_registered
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sandbox.capabilities import capabilities
from dressage.sdk import own_environments

ENVIRONMENT = "gymnasium:own_cart:Cart-v0"
MODULE = """
import os
import gymnasium
import numpy as np

assert os.environ["DRESSAGE_SANDBOXED"], "imported outside a sandboxed process"


class Cart(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.state.copy(), {}

    def step(self, action):
        self.state = np.clip(self.state + 0.1 * np.array([self.state[1], action[0]], np.float32), -10, 10)
        return self.state.copy(), -float(np.abs(self.state).sum()), False, False, {}


gymnasium.register("Cart-v0", Cart, max_episode_steps=20)
"""

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="needs the sandbox")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(custom.VARIABLE, str(tmp_path / "environments"))
    monkeypatch.delenv(SANDBOXED, raising=False)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own_cart.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_a_module_is_imported_in_a_sandboxed_process_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = own_environments.add(ENVIRONMENT)
    assert (card.id, card.observation_size, card.action_size, card.max_episode_steps) == (ENVIRONMENT, 2, 1, 20)
    assert load_card(ENVIRONMENT) == card and custom.custom_ids() == (ENVIRONMENT,)
    assert "own_cart" not in sys.modules
    with pytest.raises(FailedPrecondition, match="sandboxed processes only"):
        make_registered(ENVIRONMENT, None)
    # On the sandboxed side the copy is imported, wherever the process is.
    (folder / "here" / "own_cart.py").unlink()
    monkeypatch.chdir(folder)
    monkeypatch.setenv(SANDBOXED, "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    batch = VectorBatch(card, 2, options=EnvOptions(), fields=None)
    batch.reset([0, 1])
    assert batch.step(np.zeros((2, 1), np.float32)).observation.shape == (2, 2)
    sys.modules.pop("own_cart")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "Error"),
        ("open('/etc/passwd')", "Permission denied"),
        ("x = 1", "Cart-v0"),
    ],
)
def test_what_is_wrong_with_a_module_is_named(folder: Path, text: str, message: str) -> None:
    (folder / "here" / "own_cart.py").write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        own_environments.add(ENVIRONMENT)
    assert custom.custom_ids() == ()


def test_an_absent_module_and_a_malformed_id_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRESSAGE_HOME", str(folder / "home"))
    assert invoke(["envs", "add", "gymnasium:absent_module:Cart-v0"]) == 1
    assert "absent_module" in capsys.readouterr().err
    assert invoke(["envs", "add", "gymnasium:../own:Cart-v0"]) == 1
    assert "gymnasium:MODULE:ID" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env_id", "module"),
    [
        ("gymnasium:a.b:X-v0", "a.b"),
        ("gymnasium:X-v0", ""),
        ("mjcf:a:X", ""),
        ("gymnasium:a-b:X-v0", ""),
        ("gymnasium:a:", ""),
        ("gymnasium:a..b:X", ""),
    ],
)
def test_the_module_of_an_id(env_id: str, module: str) -> None:
    assert custom.module_of(env_id) == module
