"""The chart's objects, taken by a real API server (dry run) in a namespace that admits restricted pods only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.kubernetes import Namespace, namespace, require_cluster

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[3] / "charts" / "dressage"
SCENARIOS = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))


@pytest.fixture(scope="module")
def space() -> Iterator[Namespace]:
    require_cluster()
    with namespace("dressage-chart") as made:
        yield made


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_server_takes_every_scenario(space: Namespace, scenario: str) -> None:
    program = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
    assert program, "the package helm-binary (of the dev group) gives the program `helm`"
    command = [
        program,
        "template",
        "dressage",
        str(CHART),
        "--namespace",
        space.name,
        "-f",
        str(CHART / "ci" / scenario),
    ]
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert rendered.returncode == 0, rendered.stderr
    answer = space.run("apply", "--dry-run=server", "-f", "-", text=rendered.stdout)
    assert "statefulset.apps/dressage-orchestrator created" in answer
    # What Pod Security refuses is a warning where a controller makes the pods: it must not be there.
    assert "would violate PodSecurity" not in answer
