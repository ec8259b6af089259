"""Processes that are started ahead: locked down like any, one target each, and no trace of another."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit/sandbox"))

from dressage.errors import FailedPrecondition
from dressage.sandbox import Limits
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")
SPEC = SandboxSpec(limits=Limits(memory_bytes=1 << 30, wall_seconds=60), preload=("dressage.envs.trajectory",))


@pytest.fixture
def sandboxes(tmp_path):
    pool = Sandboxes(tmp_path / "sandboxes")
    yield pool
    pool.close()


def run(process, source):
    process.channel.send({"source": source})
    return process.channel.recv(timeout=60)


def pids(sandboxes):
    return [process.pid for _, process in sandboxes._spares]


def test_a_spare_process_gets_the_next_target_and_only_if_started_alike(sandboxes):
    sandboxes.keep_ready("test", lambda: {SPEC: 2})
    sandboxes.refill()
    ready = pids(sandboxes)
    other = sandboxes.start(replace(SPEC, threads=2), "sandbox_targets:run_source")
    first, second, third = (sandboxes.start(SPEC, "sandbox_targets:run_source") for _ in range(3))
    assert [first.pid, second.pid] == ready and third.pid not in ready and other.pid not in ready
    # Its libraries are there, and the barriers are up.
    seen = run(first, "import sys, os; out['numpy'] = 'numpy' in sys.modules; open('/etc/passwd')")
    assert seen["error"] == "PermissionError"
    seen = run(
        second, "import sys, os; out['numpy'] = 'dressage.envs.trajectory' in sys.modules; out['cwd'] = os.getcwd()"
    )
    assert seen["out"] == {"numpy": True, "cwd": str(second.scratch)}
    for process in (other, first, second, third):
        sandboxes.end(process)
        assert process.poll() is not None and not process.scratch.exists()


def test_a_process_sees_no_trace_of_the_one_before(sandboxes):
    sandboxes.keep_ready("test", lambda: {SPEC: 1})
    sandboxes.refill()
    first = sandboxes.start(SPEC, "sandbox_targets:run_source")
    sandboxes.refill()  # while the first still runs
    assert run(first, "import builtins; builtins.left = 1; open('left', 'w').write('x'); out['ok'] = 1")["out"] == {
        "ok": 1
    }
    second = sandboxes.start(SPEC, "sandbox_targets:run_source")
    source = f"""
import builtins, os
out['builtin'] = hasattr(builtins, 'left')
out['own'] = os.listdir('.')
try:
    out['other'] = open({str(first.scratch / "left")!r}).read()
except OSError as error:
    out['other'] = type(error).__name__
try:
    open({str(first.scratch / "planted")!r}, 'w')
    out['write'] = 'done'
except OSError as error:
    out['write'] = type(error).__name__
"""
    results = run(second, source)["out"]
    assert results == {"builtin": False, "own": [], "other": "PermissionError", "write": "PermissionError"}
    assert (first.scratch / "left").read_text() == "x"
    for process in (first, second):
        sandboxes.end(process)


def test_a_spare_process_that_is_not_needed_any_more_is_ended(sandboxes):
    sandboxes.keep_ready("test", lambda: {SPEC: 1})
    sandboxes.refill()
    ((_, spare),) = sandboxes._spares
    sandboxes.keep_ready("test", lambda: {replace(SPEC, threads=2): 1})
    sandboxes.refill()
    assert spare.poll() is not None and not spare.scratch.exists()
    assert [spec.threads for spec, _ in sandboxes._spares] == [2]
    sandboxes.close()
    assert not pids(sandboxes) and not list((spare.scratch.parent).iterdir())
    sandboxes.refill()
    assert not pids(sandboxes)


def test_a_spare_process_that_died_is_no_obstacle(sandboxes):
    sandboxes.keep_ready("test", lambda: {SPEC: 1})
    sandboxes.refill()
    ((_, spare),) = sandboxes._spares
    spare.kill()
    process = sandboxes.start(SPEC, "sandbox_targets:run_source")
    assert process.pid != spare.pid and run(process, "out['x'] = 1")["out"] == {"x": 1}
    sandboxes.end(process)


def test_the_wall_clock_of_a_spare_process_counts_from_its_target(tmp_path):
    sandboxes = Sandboxes(tmp_path)
    spec = replace(SPEC, limits=Limits(memory_bytes=1 << 30, wall_seconds=4.0), preload=())
    sandboxes.keep_ready("test", lambda: {spec: 1})
    sandboxes.refill()
    time.sleep(5.0)
    process = sandboxes.start(spec, "sandbox_targets:sleep")
    given = time.monotonic()
    ended = process.wait(30)
    assert ended is not None and ended.kind == "timeout" and time.monotonic() - given > 3.5
    sandboxes.end(process)
    sandboxes.close()


def test_without_a_sandbox_a_start_raises_and_a_refill_does_not(sandboxes, monkeypatch):
    def refused(*_, **__):
        raise FailedPrecondition("no barrier", reason="SANDBOX_UNAVAILABLE")

    monkeypatch.setattr("dressage_trainer.lease.sandboxes.SandboxProcess.start", refused)
    sandboxes.keep_ready("test", lambda: {SPEC: 1})
    sandboxes.refill()
    with pytest.raises(FailedPrecondition, match="no barrier"):
        sandboxes.start(SPEC, "sandbox_targets:run_source")
    assert not list(sandboxes._root.iterdir())
