"""The simulator's process: steps a batch for the learner, with faults and restarts treated alike for every simulator.

A row whose state or observation is not finite is a fault: it ends truncated, with reward 0 and its last good state, and is
restarted. No simulator's own replacement of NaN is visible.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dressage.envs.packs.batched.protocol import Facts, Result, Simulator, VisibleState, simulator_arguments
from dressage.envs.packs.process import DEVICE
from dressage.envs.packs.registry import PACKS
from dressage.envs.state import Array
from dressage.errors import Unavailable

KERNELS = "DRESSAGE_KERNELS"
"""Variable with the folder of a pack's compiled kernels."""
_COMPILED_ROWS = 2


def make(env_id: str, *, num_envs: int, max_episode_steps: int | None) -> Simulator:
    """Return the simulator of an environment, on the device that ``DRESSAGE_DEVICE`` names (``cpu``).

    :raises ImportError: outside of a pack's process.
    """
    use_kernels()
    device = os.environ.get(DEVICE, "cpu")
    (name,) = (pack.name for pack in PACKS.values() if env_id in pack.environments)
    simulator: Simulator
    if name == "mjlab":
        from dressage.envs.packs.batched.mjlab import MjlabSimulator

        simulator = MjlabSimulator(env_id, num_envs=num_envs, max_episode_steps=max_episode_steps, device=device)
    else:
        from dressage.envs.packs.batched.isaaclab import IsaacSimulator

        simulator = IsaacSimulator(env_id, num_envs=num_envs, max_episode_steps=max_episode_steps, device=device)
    return simulator


def use_kernels() -> None:
    """Have Warp compile into a folder of this process alone, which begins as a copy of the pack's compiled kernels."""
    own = Path.cwd() / "kernels"
    compiled = os.environ.get(KERNELS, "")
    if compiled and not own.exists():
        _copy(Path(compiled), own)
    os.environ["WARP_CACHE_PATH"] = str(own)


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a folder; a sandboxed process may not copy their times and permissions."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.is_dir():
            _copy(entry, target / entry.name)
        else:
            shutil.copyfile(entry, target / entry.name)


def compile_kernels(channel: Any) -> None:
    """Sandbox target: make and step the environment of the first message, so that Warp compiles what a training uses."""
    env_id = str(channel.recv(timeout=None)["environment"])
    stepper = Stepper(make(env_id, num_envs=_COMPILED_ROWS, max_episode_steps=None))
    stepper.reset(0)
    stepper.step(np.zeros((_COMPILED_ROWS, len(stepper.simulator.facts().action))))
    stepper.restart(np.zeros(1, np.int64))
    channel.send({})


class Stepper:
    """A simulator with faults and restarts.

    :param simulator: the simulator, not yet reset.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self._last: VisibleState | None = None

    def reset(self, seed: int) -> VisibleState:
        """Restart everything; return what is seen.

        :param seed: of all random streams.
        """
        self.simulator.reset(seed)
        self._last = self.simulator.visible_state()
        return self._last

    def restart(self, rows: Array) -> VisibleState:
        """Restart the environments of these numbers; return what is seen of all."""
        self.simulator.restart(rows)
        self._last = self.simulator.visible_state()
        return self._last

    def step(self, actions: Array) -> tuple[Result, Array, VisibleState]:
        """Apply actions.

        :param actions: (N, A).
        :returns: the step before restarts, the rows with a fault (N,), and what is seen after restarts.
        """
        assert self._last is not None, "reset comes first"
        refused: Array = ~np.asarray(np.isfinite(actions).all(axis=1))
        done = self.simulator.step(np.where(refused[:, None], 0.0, actions).astype(np.float32))
        faulty = refused | ~done.state.finite() | ~np.isfinite(done.reward)
        result = _contain_faults(done, faulty, self._last)
        pending = np.flatnonzero((result.terminated | result.truncated) & ~(done.restarted & ~faulty))
        if len(pending):
            self.simulator.restart(pending)
        state = self.simulator.visible_state()
        self._last = state
        return result, faulty, state


def _contain_faults(done: Result, faulty: Array, last: VisibleState) -> Result:
    if not faulty.any():
        return done

    def repair(now: Array, before: Array) -> Array:
        now = np.array(now)
        now[faulty] = before[faulty]
        return now

    fields = {name: repair(value, last.fields[name]) for name, value in done.state.fields.items()}
    return Result(
        state=VisibleState(repair(done.state.observation, last.observation), fields),
        reward=np.where(faulty, 0.0, done.reward),
        terminated=done.terminated & ~faulty,
        truncated=done.truncated | faulty,
        restarted=done.restarted,
    )


def serve(channel: Any) -> None:
    """Sandbox target: make the batch of the first message, then step it until the channel closes."""
    serve_with(make, channel)


def serve_with(build: Callable[..., Simulator], channel: Any) -> None:
    """As `serve`, with another simulator.

    :param build: takes the arguments of `make`.
    """
    try:
        request = channel.recv(timeout=None)
        stepper = Stepper(build(str(request["environment"]), **simulator_arguments(request)))
        facts: Facts = stepper.simulator.facts()
        channel.send({"max_episode_steps": facts.max_episode_steps, "fields": [entry.name for entry in facts.fields]})
        while True:
            channel.send(_reply(stepper, channel.recv(timeout=None)))
    except Unavailable:  # the other side has ended
        return


def _reply(stepper: Stepper, request: Mapping[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "reset":
            return _visible(stepper.reset(int(request["seed"])))
        case "restart":
            return _visible(stepper.restart(np.asarray(request["rows"])))
        case "step":
            result, faulty, state = stepper.step(np.asarray(request["actions"], np.float64))
            return {
                **_visible(state),
                "reward": result.reward,
                "terminated": result.terminated,
                "truncated": result.truncated,
                "faulty": faulty,
                **{f"final_{name}": value for name, value in _visible(result.state).items()},
            }
        case "spoil":
            stepper.simulator.spoil(int(request["row"]))
            return {}
    raise ValueError(f"unknown request {request['do']!r}")


def _visible(state: VisibleState) -> dict[str, Any]:
    return {"observation": state.observation, "fields": dict(state.fields)}
