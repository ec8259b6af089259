"""One physics step of MuJoCo Warp, on its CPU device, from MuJoCo's own states: all models, and a model of a user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from dressage.envs import custom
from dressage.envs.adding import add_model
from dressage.envs.device import known_difference
from dressage.envs.fields import sources_of
from dressage.envs.layout import layout_of
from dressage.envs.tasks import SIMULATED_IDS, task

from tests.unit.envs.test_envs_device import needs_warp
from tests.unit.envs.test_envs_namespace import OWN_MODEL

WORLDS, STEPS = 4, 40
POSITIONS = 2e-6
"""Largest difference of 99 of 100 positions, m or rad: single precision, and Newton's solver in place of PGS."""
RELATIVE = 2e-3
"""Largest difference of 99 of 100 numbers of an array that depends on contacts, of the array's size."""
MODELS = [
    pytest.param(
        env_id,
        marks=[pytest.mark.xfail(strict=True, reason=known)] if (known := known_difference(env_id)) else [],
    )
    for env_id in SIMULATED_IDS
]
pytestmark = [needs_warp, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("env_id", MODELS)
def test_one_step_equals_that_of_mujoco(env_id: str) -> None:
    _compare(env_id)


def test_one_step_of_a_users_model_equals_that_of_mujoco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(custom.VARIABLE, str(tmp_path))
    path = tmp_path / "own.xml"
    path.write_text(OWN_MODEL)
    _compare(add_model(path).id)


@pytest.mark.parametrize("env_id", ["Humanoid-v5", "HumanoidStandup-v5"])
def test_another_solver_is_recorded(env_id: str) -> None:
    from dressage.envs.warp_env import Physics

    physics = Physics(task(env_id).load(), 1, frame_skip=1, sources=["qpos", "qvel"])
    assert "Newton instead of PGS" in physics.provenance["solver"]


def _compare(env_id: str) -> None:
    from dressage.envs.warp_env import Physics

    definition, rng = task(env_id), np.random.default_rng(0)
    model = definition.load()
    sources = {"qpos", "qvel", "time", *definition.sources, *sources_of(definition.fields(layout_of(model)))} - {"act"}
    physics = Physics(definition.load(), WORLDS, frame_skip=1, sources=sorted(sources))
    step = jax.jit(physics.step)
    worlds = [_start(model, definition, rng) for _ in range(WORLDS)]
    low, high = model.actuator_ctrlrange.T
    apart: dict[str, list[np.ndarray]] = {}
    size: dict[str, float] = {}
    for _ in range(STEPS):
        action = rng.uniform(low, high, (WORLDS, model.nu)).astype(np.float32)
        carry = {name: _stacked(worlds, name) for name in ("qpos", "qvel", "time", "qacc_warmstart")}
        raw, _, overflow = step({name: jnp.asarray(array, jnp.float32) for name, array in carry.items()}, action)
        assert not overflow.any()
        for world, control in zip(worlds, action, strict=True):
            world.ctrl[:] = control
            mujoco.mj_step(model, world)
            mujoco.mj_rnePostConstraint(model, world)
        for name in raw:
            expected = _stacked(worlds, name)
            if expected.size:
                apart.setdefault(name, []).append(np.abs(np.asarray(raw[name]) - expected).ravel())
                size[name] = max(size.get(name, 0.0), float(np.abs(expected).max()))
    worst = {name: float(np.quantile(np.concatenate(values), 0.99)) for name, values in apart.items()}
    assert worst["qpos"] <= POSITIONS, worst
    for name, value in worst.items():
        assert value <= RELATIVE * max(size[name], 1.0), (name, value, size[name], worst)


def _start(model: Any, definition: Any, rng: np.random.Generator) -> Any:
    """A simulation at the start of an episode, near the ground where there is one."""
    data = mujoco.MjData(model)
    qpos, qvel = definition.start(rng, definition.initial_qpos(model), nv=int(model.nv), scale=0.1)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    return data


def _stacked(worlds: list[Any], name: str) -> np.ndarray:
    return np.stack([np.array(getattr(world, name)) for world in worlds])
