"""The poses with which the page's WebAssembly is compared are those of the installed MuJoCo."""

from __future__ import annotations

import json

import numpy as np

from tools import console_poses


def test_the_expected_poses_are_current() -> None:
    committed, live = json.loads(console_poses.TARGET.read_text("utf-8")), console_poses.poses()
    assert list(committed) == list(live)
    for name, entry in live.items():
        assert committed[name]["file"] == entry["file"]
        for old, new in zip(committed[name]["frames"], entry["frames"], strict=True):
            for key in ("qpos", "qvel", "ctrl", "geom_xpos", "geom_xmat"):
                assert np.abs(np.subtract(old[key], new[key])).max(initial=0) < 1e-8, (name, key)
