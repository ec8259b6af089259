"""Calls of generated code that do not return: which are ended, and which are not."""

import signal
import textwrap
import time

import pytest
from dressage.contracts.execute import line_of_stack
from dressage.sandbox import Limits, SandboxProcess
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.heartbeat import (
    ASLEEP_SECONDS,
    CEILING_SECONDS,
    FLOOR_SECONDS,
    Beat,
    Heartbeat,
    StallWatch,
    ThreadTime,
    seconds_allowed,
)
from hypothesis import given
from hypothesis import strategies as st

needs_sandbox = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")
CALLS = 0.5


def begun(tmp_path, body, *, seconds=CALLS):
    """Start a process that makes 300 short calls and then the one given, in code called <generated>."""
    source = f"""
    from dressage.sandbox.heartbeat import heartbeat
    for _ in range(300):
        with heartbeat():
            pass
    code = compile({body!r}, "<generated>", "exec")
    with heartbeat():
        exec(code)
    """
    process = SandboxProcess.start(
        "sandbox_targets:run_source",
        limits=Limits(memory_bytes=1 << 30, wall_seconds=60, call_seconds=seconds),
        scratch=tmp_path,
    )
    process.channel.send({"source": textwrap.dedent(source)})
    return process


@needs_sandbox
@pytest.mark.parametrize(
    "body",
    [
        "a = 1\nb = sum(range(10**15))",
        "a = 1\nb = 10**10**9",
        "a = 1\nb = max(range(10**13))",
        "a = 1\nwhile a: pass",
        "a = 1\nb = list(zip(*[iter(range(10**15))] * (10**6)))[0] if sorted(range(10**7)) * 0 else sum(range(10**15))",
    ],
)
def test_a_call_that_does_not_return_is_ended_with_its_line(tmp_path, body):
    with begun(tmp_path, body) as process:
        ended = process.wait(30)
    assert ended is not None and ended.kind == "stalled" and ended.bound and "has not returned" in ended.reason
    assert line_of_stack(ended.stderr_tail) == 2


@needs_sandbox
def test_a_stopped_process_is_not_taken_for_a_stalled_one(tmp_path):
    # It sleeps first, so that the signal finds it in its call however fast it started.
    body = "import time\ntime.sleep(1.5)\nend = time.thread_time() + 0.3\nwhile time.thread_time() < end: pass"
    with begun(tmp_path, body) as process:
        time.sleep(0.6)
        import os

        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(3 * CALLS)
        os.kill(process.pid, signal.SIGCONT)
        assert process.channel.recv(timeout=30) == {"out": {}}


@needs_sandbox
def test_work_outside_of_calls_and_sleep_are_not_stalls(tmp_path):
    with begun(tmp_path, "import time\ntime.sleep(1.0)") as process:
        assert process.channel.recv(timeout=30) == {"out": {}}
    outside = "end = __import__('time').thread_time() + 1.0\nwhile __import__('time').thread_time() < end: pass"
    process = SandboxProcess.start(
        "sandbox_targets:run_source", limits=Limits(wall_seconds=60, call_seconds=CALLS), scratch=tmp_path
    )
    with process:
        process.channel.send({"source": outside})
        assert process.channel.recv(timeout=30) == {"out": {}}


@needs_sandbox
@pytest.mark.parametrize("written", ["2**64 - 1", "1"])
def test_a_forged_page_ends_nothing_but_the_process(tmp_path, written):
    source = f"""
    import time
    from dressage.sandbox.heartbeat import heartbeat
    heartbeat()._words[1] = 2**64 - 1
    heartbeat()._words[2] = 2**64 - 1
    heartbeat()._words[0] = {written}
    time.sleep(0.2)
    """
    limits = Limits(wall_seconds=60, call_seconds=CALLS)
    with SandboxProcess.start("sandbox_targets:run_source", limits=limits, scratch=tmp_path) as process:
        process.channel.send({"source": textwrap.dedent(source)})
        assert process.channel.recv(timeout=30) == {"out": {}}
        assert process.wait(10).kind == "ok"


@given(st.floats(0, 1e6))
def test_what_a_call_may_take_has_a_floor_and_a_ceiling(longest):
    assert FLOOR_SECONDS <= seconds_allowed(longest) <= CEILING_SECONDS < 60
    assert seconds_allowed(longest) >= min(CEILING_SECONDS, 20 * longest)


def test_calls_within_a_call_are_part_of_it():
    words = memoryview(bytearray(24))
    beat = Heartbeat(words)
    with beat:
        with beat, beat:
            assert words.cast("Q")[0] == 1
        assert words.cast("Q")[0] == 1, "the outer call is in progress"
    assert words.cast("Q")[0] == 2


def observed(watch, samples):
    """The index of the first sample at which a stall is seen; None if there is none."""
    return next((index for index, sample in enumerate(samples) if watch.observe(*sample)), None)


def test_processor_time_counts_and_time_on_the_wall_does_not():
    beat = Beat(calls=7, thread=1, longest_seconds=0.001)
    starved = [(float(i), beat, ThreadTime(0.01 * i, asleep=False)) for i in range(900)]
    assert observed(StallWatch(CEILING_SECONDS), starved) is None
    busy = [(float(i), beat, ThreadTime(100.0 + i, asleep=False)) for i in range(900)]
    assert observed(StallWatch(CEILING_SECONDS), busy) == FLOOR_SECONDS + 1


def test_each_call_has_its_own_time():
    calls = [(float(i), Beat(1 + 2 * (i // 5), 1, 5.0), ThreadTime(float(i), asleep=False)) for i in range(900)]
    assert observed(StallWatch(CEILING_SECONDS), calls) is None


def test_a_watcher_that_did_not_run_counts_no_time():
    beat = Beat(calls=7, thread=1)
    paused = [(3600.0 * i, beat, None) for i in range(int(CEILING_SECONDS) - 1)]
    assert observed(StallWatch(CEILING_SECONDS), paused) is None


def test_a_call_that_sleeps_for_ever_ends():
    beat = Beat(calls=7, thread=1)
    asleep = [(float(i), beat, ThreadTime(1.0, asleep=True)) for i in range(900)]
    assert observed(StallWatch(CEILING_SECONDS), asleep) == ASLEEP_SECONDS + 1
