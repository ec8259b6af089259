"""The wall-clock limit on a machine that has no processor for the process."""

import os
import signal
import time

import pytest
from dressage.errors import DeadlineExceeded
from dressage.sandbox import Limits, SandboxProcess, process
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.usage import overdue, run_delay

needs_sandbox = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")
PATIENT = Limits(wall_seconds=1.0, starved_seconds=4.0)


@pytest.fixture
def starved(monkeypatch):
    """A kernel that counts nine tenths of each process's time as a wait for a processor."""
    begun = {}

    def read(pid):
        now = time.monotonic()
        return 0.9 * (now - begun.setdefault(pid, now - PATIENT.wall_seconds))

    monkeypatch.setattr(process, "run_delay", read)


@pytest.mark.parametrize(
    ("elapsed", "delayed", "kind"),
    [
        (29.0, 0.0, None),
        (31.0, 0.0, "timeout"),
        (31.0, 2.0, None),
        (100.0, 71.0, None),
        (100.0, 69.0, "timeout"),
        (121.0, 100.0, "starved"),
        (121.0, 90.0, "timeout"),
    ],
)
def test_waits_for_a_processor_do_not_count(elapsed, delayed, kind):
    late = overdue(Limits(wall_seconds=30.0, starved_seconds=120.0), elapsed, delayed)
    assert (late and late[0]) == kind


@pytest.mark.parametrize(("delayed", "kind"), [(0.02, "timeout"), (2.0, "starved")])
def test_a_process_that_hardly_waited_is_to_blame_at_its_deadline(delayed, kind):
    late = overdue(Limits(wall_seconds=5.0, starved_seconds=5.0), 5.01, delayed)
    assert late is not None and late[0] == kind


def test_without_a_limit_for_starved_processes_all_time_counts():
    assert overdue(Limits(wall_seconds=30.0), 31.0, 30.0) == ("timeout", "it ran longer than 30 s")
    assert overdue(Limits(), 1e9, 0.0) is None


def test_the_kernel_counts_waits_for_a_processor():
    assert run_delay(os.getpid()) >= 0.0
    assert run_delay(2**30) == 0.0, "no such process"


def test_a_process_that_sleeps_ends_at_its_limit(inside):
    begin = time.monotonic()
    failure = inside("import time; time.sleep(60)", limits=PATIENT)
    assert failure.kind == "timeout" and "longer than 1 s" in failure.message
    assert time.monotonic() - begin < 10


def test_a_process_that_computes_ends_at_its_limit(inside, monkeypatch):
    monkeypatch.setattr(process, "run_delay", lambda pid: 0.0)
    assert inside("while True: pass", limits=PATIENT).kind == "timeout"


@needs_sandbox
def test_a_stopped_process_is_not_a_starved_one(tmp_path):
    with SandboxProcess.start("sandbox_targets:sleep", limits=PATIENT, scratch=tmp_path) as child:
        os.kill(child.pid, signal.SIGSTOP)
        ended = child.wait(20)
    assert ended is not None and ended.kind == "timeout" and ended.bound


@needs_sandbox
def test_a_starved_process_has_more_time(inside, starved):
    assert inside("import time; time.sleep(2.0); out['done'] = 1", limits=PATIENT) == {"out": {"done": 1}}


@needs_sandbox
def test_a_process_that_stays_starved_is_not_to_blame(inside, starved):
    begin = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"the machine is overloaded: in 4 s .* waited") as caught:
        inside("while True: pass", limits=PATIENT)
    assert caught.value.reason == "MACHINE_OVERLOADED"
    assert 4.0 < time.monotonic() - begin < 15


@needs_sandbox
def test_waits_before_the_assignment_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "run_delay", lambda pid: 100.0)
    with SandboxProcess.start(None, limits=PATIENT, scratch=tmp_path) as child:
        child.assign("sandbox_targets:sleep")
        ended = child.wait(20)
    assert ended is not None and ended.kind == "timeout"
