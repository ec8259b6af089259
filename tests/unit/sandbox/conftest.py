from pathlib import Path

import pytest
from dressage.sandbox import Limits, SandboxFailure, run
from dressage.sandbox.capabilities import capabilities

LIMITS = Limits(memory_bytes=1 << 30, wall_seconds=60)


@pytest.fixture(autouse=True)
def _targets(monkeypatch):
    """Let the child, which inherits the import path, import the targets in this folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def inside(tmp_path):
    """Run a source in a sandbox; returns what it left in ``out``, or its error, or the failure of the process."""
    if not capabilities().sufficient:
        pytest.skip(f"no sandbox here: {capabilities().missing}")

    def call(source, *, limits=LIMITS, **arguments):
        try:
            request = {"source": source, **arguments.pop("request", {})}
            return run("sandbox_targets:run_source", request, limits=limits, scratch=tmp_path, **arguments)
        except SandboxFailure as failure:
            return failure

    return call
