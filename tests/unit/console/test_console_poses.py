"""The poses with which the page's WebAssembly is compared are those of the installed MuJoCo."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_the_stored_poses_are_current(tmp_path: Path) -> None:
    live = {name: tmp_path / path.name for name, path in console_poses.RECORDED.items()}
    console_poses.write_recorded(live)
    for name, path in console_poses.RECORDED.items():
        with np.load(path) as committed, np.load(live[name]) as fresh:
            assert committed.files == fresh.files
            assert committed["schema"].tobytes() == fresh["schema"].tobytes()
            for key in set(committed.files) - {"schema"}:
                assert np.allclose(committed[key], fresh[key], atol=1e-6), (name, key)
