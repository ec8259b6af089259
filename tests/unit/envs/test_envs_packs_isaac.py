"""The adapter of Isaac Lab on an environment with the methods of `isaaclab`'s DirectRLEnv, in their order.

The environment is made up, after the sources of the package, which `test_trainer_gpu_packs.py` runs.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dressage.envs.packs.batched.stepping import Stepper

torch = pytest.importorskip("torch")
LIMIT = 4


class Direct:
    """One joint that moves by its action; an episode ends beyond 1 m. `reset` keeps no observation."""

    def __init__(self, config: Any) -> None:
        self.num_envs, self.step_dt = config.num_envs, 0.1
        self.max_episode_length = round(config.episode_length_s / 0.1)
        self.single_observation_space = {"policy": SimpleNamespace(shape=(1,))}
        self.single_action_space = SimpleNamespace(shape=(1,))
        data = SimpleNamespace(joint_pos=torch.zeros(self.num_envs, 1), joint_vel=torch.zeros(self.num_envs, 1))
        robot = SimpleNamespace(data=data, joint_names=["slider"], is_fixed_base=True)
        self.scene = SimpleNamespace(articulations={"robot": robot}, write_data_to_sim=lambda: None)
        self.sim = SimpleNamespace(forward=lambda: None)
        self._data, self._lengths = data, torch.zeros(self.num_envs, dtype=torch.long)
        self.restarts: list[Any] = []

    @property
    def unwrapped(self) -> Direct:
        return self

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(seed)
        self._reset_idx(torch.arange(self.num_envs, dtype=torch.int32))
        return self._get_observations(), {}

    def _reset_idx(self, rows: Any) -> None:
        self.restarts.append(rows)
        self._data.joint_pos[rows] = 0.1 * torch.rand(len(rows), 1)
        self._lengths[rows] = 0

    def step(self, action: Any) -> Any:
        self._data.joint_pos += action
        self._lengths += 1
        ended, late = self._data.joint_pos[:, 0].abs() > 1, self._lengths >= self.max_episode_length
        reward = self._get_rewards()
        rows = (ended | late).nonzero().squeeze(-1)
        if len(rows):
            self._reset_idx(rows)
        self.obs_buf = self._get_observations()
        return self.obs_buf, reward, ended, late, {}

    def _get_rewards(self) -> Any:
        return self._data.joint_pos[:, 0].clone()

    def _get_observations(self) -> dict[str, Any]:
        return {"policy": self._data.joint_pos.clone()}


@pytest.fixture
def stepper(monkeypatch: pytest.MonkeyPatch) -> Stepper:
    import gymnasium
    from dressage.envs.packs.batched.isaaclab import IsaacSimulator

    def parse(task: str, device: str, num_envs: int) -> Any:
        return SimpleNamespace(num_envs=num_envs, episode_length_s=1.0, decimation=2, sim=SimpleNamespace(dt=0.05))

    tasks, utils = ModuleType("isaaclab_tasks"), ModuleType("isaaclab_tasks.utils")
    utils.parse_env_cfg = parse  # type: ignore[attr-defined]
    for module in (tasks, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(gymnasium, "make", lambda task, cfg, disable_env_checker: Direct(cfg))
    return Stepper(IsaacSimulator("Isaac-Cartpole-Direct", num_envs=3, max_episode_steps=LIMIT, device="cpu"))


def test_fields_and_limits_are_those_of_the_task(stepper: Stepper) -> None:
    facts = stepper.simulator.facts()
    assert (facts.max_episode_steps, facts.time_step) == (LIMIT, 0.1)
    assert [field.name for field in facts.fields] == ["joint_positions", "joint_velocities"]


def test_states_are_those_before_a_restart(stepper: Stepper) -> None:
    first = stepper.reset(5)
    np.testing.assert_array_equal(first.observation, first.fields["joint_positions"])
    moves = np.array([[2.0], [0.25], [0.0]])
    result, faulty, state = stepper.step(moves)
    assert not faulty.any() and result.terminated.tolist() == [True, False, False]
    expected = first.observation + moves
    np.testing.assert_allclose(result.state.fields["joint_positions"], expected, rtol=1e-6)
    np.testing.assert_allclose(result.state.observation, expected, rtol=1e-6)
    np.testing.assert_allclose(result.reward, expected[:, 0], rtol=1e-6)
    assert 0 <= state.observation[0, 0] <= 0.1
    np.testing.assert_array_equal(state.observation[1:], result.state.observation[1:])


def test_a_fault_restarts_its_row_with_the_indices_of_the_package(stepper: Stepper) -> None:
    stepper.reset(5)
    stepper.simulator.spoil(1)
    result, faulty, state = stepper.step(np.zeros((3, 1)))
    assert faulty.tolist() == [False, True, False] and result.reward[1] == 0
    assert np.isfinite(state.observation).all()
    rows = stepper.simulator._env.restarts[-1]  # type: ignore[attr-defined]
    assert rows.tolist() == [1] and rows.dtype == torch.int32
