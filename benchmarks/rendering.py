"""Frames per second of the renderer, compared with Gymnasium's ``rgb_array``: Humanoid-v5 at 480×480, by EGL.

Both draw the same recorded states from the same view; ours includes the overlay. Gymnasium draws shadows, reflections and
multisampled edges, which we leave out: in software that is where the time goes. The limit is bare MuJoCo drawing one state
over and over with the same effects off. A whole video, with encoding, is in the notes. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["MUJOCO_GL"] = "egl"

import gymnasium
import mujoco
import numpy as np
from dressage.envs.trajectory import Trajectory
from dressage_renderer.options import RenderOptions
from dressage_renderer.overlay import Overlay, readings
from dressage_renderer.stage import Stage
from dressage_renderer.video import render_video

ENVIRONMENT, SIDE, REPEATS = "Humanoid-v5", 480, 3


def record(steps: int) -> Trajectory:
    """An episode of random actions, restarted when the humanoid falls, so that there are states enough to draw."""
    env = gymnasium.make(ENVIRONMENT)
    rng, data = np.random.default_rng(0), env.unwrapped.data
    env.reset(seed=0)
    qpos, rewards = [data.qpos.copy()], []
    for _ in range(steps):
        _, reward, ended, *_ = env.step(rng.uniform(-0.4, 0.4, env.action_space.shape))
        if ended:
            env.reset()
        qpos.append(data.qpos.copy())
        rewards.append(reward)
    dt = env.unwrapped.dt
    env.close()
    rows = steps + 1
    fields = {"time": np.arange(rows) * dt, "x_velocity": np.zeros(rows)}
    return Trajectory(ENVIRONMENT, 0, fields, np.zeros((steps, 17)), np.array(rewards), False, True, np.array(qpos),
                      np.zeros((rows, 23)))  # fmt: skip


def ours(trajectory: Trajectory) -> Callable[[], int]:
    stage = Stage(ENVIRONMENT, width=SIDE, height=SIDE)
    overlay = Overlay(readings(trajectory), width=SIDE, height=SIDE)

    def run() -> int:
        for qpos, moment in zip(trajectory.qpos, trajectory.time, strict=True):
            overlay.draw(stage.draw(qpos), float(moment))
        return len(trajectory.qpos)

    return run


def bare(trajectory: Trajectory) -> Callable[[], int]:
    stage = Stage(ENVIRONMENT, width=SIDE, height=SIDE)
    stage.draw(trajectory.qpos[0])

    def run() -> int:
        for _ in trajectory.qpos:
            stage._gl.make_current()
            mujoco.mjr_render(stage._viewport, stage._scene, stage._context)
            mujoco.mjr_readPixels(stage._pixels, None, stage._viewport, stage._context)
        return len(trajectory.qpos)

    return run


def peer(trajectory: Trajectory) -> Callable[[], int]:
    env = gymnasium.make(ENVIRONMENT, render_mode="rgb_array", width=SIDE, height=SIDE)
    env.reset(seed=0)
    stock: Any = env.unwrapped
    env.render()

    def run() -> int:
        viewer = stock.mujoco_renderer.viewer
        viewer.make_context_current()
        # A tenth of the frames is enough for a slow one.
        states = trajectory.qpos[::10]
        for qpos in states:
            stock.data.qpos[:] = qpos
            mujoco.mj_forward(stock.model, stock.data)
            env.render()
        return len(states)

    return run


def rates(contenders: dict[str, Callable[[], int]], repeats: int) -> dict[str, list[float]]:
    """Frames per second of each, in turn, so that a busy moment hits all alike."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            begin = time.perf_counter()
            frames = run()
            speeds[name].append(frames / (time.perf_counter() - begin))
    return speeds


def whole_video(trajectory: Trajectory) -> float:
    """Frames per second with everything: model, context, drawing, overlay, encoding."""
    with tempfile.TemporaryDirectory() as folder:
        report = render_video(trajectory, Path(folder) / "video.mp4", RenderOptions(end=10.0, fps=60))
    return report.frames / report.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    trajectory = record(given.frames)
    # One context is current at a time, so each contender draws in a run of its own and makes its own current first.
    measured: dict[str, list[float]] = {}
    for name, make in {"ours": ours, "limit": bare, "peer": peer}.items():
        measured |= rates({name: make(trajectory)}, given.repeats)
    middle = {name: statistics.median(values) for name, values in measured.items()}
    packages = ("mujoco", "gymnasium", "av", "pillow", "numpy")
    print(json.dumps({
        "name": "rendering",
        "what": f"Rendering of {ENVIRONMENT} at {SIDE}x{SIDE}; peer: Gymnasium's `rgb_array`",
        "unit": "frames/s",
        "ours": round(middle["ours"], 1),
        "peer": round(middle["peer"], 1),
        "ratio": round(middle["ours"] / middle["peer"], 2),
        "limit": round(middle["limit"], 1),
        "share_of_limit": round(middle["ours"] / middle["limit"], 3),
        "repeats": given.repeats,
        "spread": {name: [round(min(values), 1), round(max(values), 1)] for name, values in measured.items()},
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "notes": f"{ENVIRONMENT} at {SIDE}x{SIDE}, software EGL unless a GPU is found; peer: Gymnasium's rgb_array; limit: "
                 f"bare MuJoCo with the same effects off; a whole video with set-up and encoding: "
                 f"{whole_video(trajectory):.1f} frames/s",
    }))  # fmt: skip


if __name__ == "__main__":
    main()
