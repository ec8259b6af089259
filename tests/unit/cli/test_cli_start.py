"""How fast the command starts."""

from __future__ import annotations

import os
import subprocess
import sys


def test_help_is_fast_and_has_no_heavy_imports():
    begin = os.times()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dressage.cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    used = os.times()
    imported = {entry.rsplit("|", 1)[1].strip() for entry in done.stderr.splitlines() if "|" in entry}
    heavy = {"grpc", "google.protobuf", "numpy", "rich", "mujoco", "jax", "pydantic", "structlog", "yaml"}
    assert not heavy & imported
    assert "sessions" in done.stdout
    # Processor time of the child, since this machine may be busy with other work; importtime itself slows it down.
    assert used.children_user + used.children_system - begin.children_user - begin.children_system < 0.6
