"""A few seeds of `make chaos`: processes are killed and connections disturbed, and the session is the same as without.

`docs/reliability.md` records many more, of all methods, on both kinds of installations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from dressage.sandbox.capabilities import capabilities

from tests.chaos.faults import Fault
from tests.chaos.outcome import differences
from tests.chaos.runner import Chaos, chaos

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    with chaos("sqlite", tmp_path_factory.mktemp("chaos")) as running:
        yield running


def check(installed: Chaos, method: str, faults: list[Fault]) -> None:
    line = installed.disturbed(0, method, kills=0, faults=faults)
    assert not line["differences"], line
    applied = [entry["kind"] for entry in line["faults"]]
    assert applied == [fault.kind for fault in faults], "the session ended before all faults: they proved nothing"


def test_kills_of_all_services_and_a_trainer(installed: Chaos) -> None:
    faults = [
        Fault(0.2, 0.1, "kill", "llm_agent", 0.0),
        Fault(0.2, 0.1, "kill", "orchestrator", 0.0),
        Fault(0.5, 0.1, "kill", "trainer", 0.0),
        Fault(0.5, 0.1, "cut", "trainer>orchestrator", 0.0),
    ]
    check(installed, "parameters", faults)


def test_a_killed_search_and_a_full_disk(installed: Chaos) -> None:
    faults = [Fault(0.3, 0.2, "kill", "sandbox", 0.0), Fault(0.4, 0.1, "duplicate", "trainer>orchestrator", 0.0)]
    if installed.running.disks:
        faults.append(Fault(0.6, 0.0, "disk", "data", 1.0))
    check(installed, "program", faults)


@pytest.mark.parametrize("method", ["code", pytest.param("reward", marks=pytest.mark.slow)])
def test_sigterm_of_judge_and_renderer(installed: Chaos, method: str) -> None:
    """As when a cluster replaces them: each drains within a minute, and the session is the same as without."""
    faults = [
        Fault(0.1, 0.1, "term", "judge", 0.0),
        Fault(0.4, 0.1, "term", "renderer", 0.0),
        Fault(0.6, 0.1, "term", "judge", 0.0),
    ]
    check(installed, method, faults)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["code", "reward"])
def test_kills_of_every_kind(installed: Chaos, method: str) -> None:
    faults = [
        Fault(0.1, 0.2, "kill", "orchestrator", 0.0),
        Fault(0.3, 0.1, "kill", "judge", 0.0),
        Fault(0.5, 0.1, "kill", "sandbox", 0.0),
        Fault(0.6, 0.1, "term", "llm_agent", 0.0),
    ]
    check(installed, method, faults)


def test_a_comparison_finds_what_differs(installed: Chaos) -> None:
    calm, _ = installed.calm("parameters", 0)
    assert calm.counted == sum(calm.requests.values()) > 0 and len(calm.artifacts) > 5 and len(calm.events) > 10
    assert not differences(calm, calm, repeats=0)
    request, artifact = next(iter(calm.requests)), next(iter(calm.artifacts))
    repeated = replace(calm, requests={**calm.requests, request: calm.requests[request] + 1})
    assert differences(calm, repeated, repeats=0) and not differences(calm, repeated, repeats=1)
    assert differences(calm, replace(calm, requests={**calm.requests, "another": 1}), repeats=1)
    assert differences(calm, replace(calm, artifacts={**calm.artifacts, artifact: "changed"}), repeats=0)
    assert differences(calm, replace(calm, events=[*calm.events, calm.events[0]]), repeats=0)
    assert differences(calm, replace(calm, events=calm.events[1:]), repeats=0)
    assert differences(calm, replace(calm, counted=calm.counted - 1), repeats=0)
    fewer = (calm.counted_by_iteration[0] - 1, *calm.counted_by_iteration[1:])
    assert differences(calm, replace(calm, counted_by_iteration=fewer), repeats=0)
