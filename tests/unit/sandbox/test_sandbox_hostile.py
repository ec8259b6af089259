"""What hostile programs are ended for, and how. `test_sandbox_corpus.py` runs those that reach for something."""

import os
import signal
import time

import pytest
from dressage.sandbox import Limits, SandboxFailure

GIB = 1 << 30
MIB = 1 << 20

RAW_CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
for name, number, *arguments in request["calls"]:
    ctypes.set_errno(0)
    out[name] = [libc.syscall(number, *arguments), ctypes.get_errno()]
"""


def test_raw_system_calls_are_refused(inside):
    import platform

    from dressage.sandbox.syscalls import MACHINES

    numbers = MACHINES[platform.machine()].numbers
    names = [
        "ptrace",
        "unshare",
        "mount",
        "setns",
        "bpf",
        "keyctl",
        "userfaultfd",
        "perf_event_open",
        "process_vm_readv",
    ]
    calls = [[name, numbers[name], 0, 0, 0, 0, 0] for name in [*names, "io_uring_setup", "clone3", "shmget"]]
    calls.append(["clone as a process", numbers["clone"], signal.SIGCHLD, 0, 0, 0, 0])
    calls.append(["a call of the future", 1000, 0, 0, 0, 0, 0])
    calls.append(["unbinding from the parent", numbers["prctl"], 1, 0, 0, 0, 0])
    calls.append(["signals by fcntl", numbers["fcntl"], 0, 8, os.getpid(), 0, 0])

    out = inside(RAW_CALLS, request={"calls": calls})["out"]

    assert {name: result for name, (result, _) in out.items()} == dict.fromkeys(out, -1)
    enosys = {name for name, (_, errno) in out.items() if errno == 38}
    assert enosys == {"io_uring_setup", "clone3", "a call of the future"}
    assert {errno for name, (_, errno) in out.items() if name not in enosys} == {1}


def test_x32_calls_are_refused(inside):
    import platform

    if platform.machine() != "x86_64":
        pytest.skip("x86_64 only")
    out = inside(RAW_CALLS, request={"calls": [["getpid", 39, 0], ["x32 getpid", 0x40000000 + 39, 0]]})["out"]
    assert out["getpid"][0] > 0
    assert out["x32 getpid"] == [-1, 38]


def test_nothing_of_our_environment_is_there(inside, monkeypatch):
    monkeypatch.setenv("DRESSAGE_RUN_TOKEN", "do-not-tell")
    out = inside(
        "import os; out['environ'] = dict(os.environ); out['proc'] = open('/proc/self/environ').read();"
        "out['fds'] = len(os.listdir('/proc/self/fd')); import sys; out['argv'] = sys.argv"
    )["out"]
    assert "do-not-tell" not in str(out)
    assert out["environ"]["HOME"] == os.path.realpath(out["environ"]["HOME"]) == out["environ"]["TMPDIR"]
    assert set(out["environ"]) <= {
        "PATH", "LANG", "HOME", "TMPDIR", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "MUJOCO_GL", "PYGLFW_LIBRARY",
        "DRESSAGE_SANDBOXED",
        "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NPROC", "PJRT_NPROC",
    }  # fmt: skip
    assert out["fds"] <= 6  # three standard ones, the channel's two, and the listing itself
    assert len(out["argv"]) == 1


def test_it_has_no_capabilities_even_as_root(inside):
    out = inside("out['status'] = open('/proc/self/status').read()")["out"]
    status = dict(line.split(":\t", 1) for line in out["status"].splitlines() if ":\t" in line)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_twenty_gigabytes_by_and_by_end_it(inside):
    begin = time.monotonic()
    failure = inside(
        "x = []\nwhile True: x.append(bytearray(b'x') * (1 << 20))",
        limits=Limits(memory_bytes=256 * MIB, wall_seconds=60),
    )
    assert isinstance(failure, SandboxFailure)
    assert failure.kind == "memory"
    assert "256 MiB" in failure.message
    assert time.monotonic() - begin < 30


def test_its_own_limits_cannot_be_raised(inside):
    source = "import resource; resource.setrlimit(resource.RLIMIT_{0}, (-1, -1))"
    for which in ("DATA", "FSIZE", "NOFILE"):
        assert inside(source.format(which))["error"] in {"ValueError", "PermissionError", "OSError"}


def test_an_endless_loop_ends_at_the_deadline(inside):
    begin = time.monotonic()
    failure = inside("while True: pass", limits=Limits(wall_seconds=1.5))
    assert failure.kind == "timeout"
    assert "1.5 s" in failure.message
    assert time.monotonic() - begin < 10


def test_processor_time_is_bounded(inside):
    failure = inside(
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        limits=Limits(cpu_seconds=1, wall_seconds=60),
    )
    assert failure.kind == "timeout"
    assert "processor time" in failure.message


def test_a_thread_bomb_ends(inside):
    source = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()"
    failure = inside(source, limits=Limits(processes=20, wall_seconds=60))
    if isinstance(failure, SandboxFailure):
        assert failure.kind == "killed"
        assert "threads" in failure.message
    else:
        # Faster than the watch: the kernel's bound on private memory (each thread has a stack) came first.
        assert failure["error"] == "RuntimeError"


def test_files_are_bounded(inside, tmp_path):
    reply = inside("open('big', 'wb').write(bytes(3 << 20))", limits=Limits(file_bytes=MIB, wall_seconds=60))
    assert reply["error"] == "OSError"
    assert (tmp_path / "big").stat().st_size <= MIB


def test_scratch_is_bounded(inside):
    source = "i = 0\nwhile True:\n  i += 1\n  open(f'f{i}', 'wb').write(bytes(1 << 20)) if i < 64 else None"
    failure = inside(source, limits=Limits(scratch_bytes=8 * MIB, wall_seconds=60))
    assert failure.kind == "killed"
    assert "scratch" in failure.message


def test_a_main_thread_that_hides_behind_others_is_ended(inside):
    source = (
        "import ctypes, threading, time, platform\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)"
    )
    failure = inside(source)
    assert failure.kind == "killed"
    assert "main thread" in failure.message


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("channel.send({'x': bytes(40 << 20)})", "exceeds the limit"),
        ("import os; os.write(channel._write_fd, b'not a message at all')", "not a message"),
        (
            "import os, struct; os.write(channel._write_fd, struct.pack('<4sIQ', b'DRS1', 9, 0) + b'not json!')",
            "not valid",
        ),
        (
            "import os, struct; os.write(channel._write_fd, struct.pack('<4sIQ', b'DRS1', 40000, 0) + b'[' * 40000)",
            "not valid",
        ),
    ],
    ids=["huge", "garbage", "no JSON", "nested without end"],
)
def test_bad_messages_are_failures(tmp_path, source, part):
    from dressage.sandbox import SandboxProcess

    limits = Limits(wall_seconds=60)
    with SandboxProcess.start("sandbox_targets:run_source", limits=limits, scratch=tmp_path) as process:
        process.channel._max_reply_bytes = 32 << 20  # ours, not the child's: a hostile child keeps to no limit
        process.channel.send({"source": source})
        from dressage.sandbox import ProtocolError

        with pytest.raises(ProtocolError, match=part):
            process.channel.recv(timeout=30)


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        ("i = 0\nwhile True:\n  i += 1\n  open(f'f{i}', 'wb').write(bytes(1 << 20)) if i < 64 else None", True),
        ("while True: pass", True),
        ("import ctypes; ctypes.string_at(0)", False),
        ("import os; os.abort()", False),
        ("raise SystemExit(3)", False),
    ],
    ids=["fills its folder", "endless loop", "segmentation fault", "abort", "exits"],
)
def test_a_bound_that_was_passed_is_told_from_a_crash(tmp_path, source, bound):
    from dressage.sandbox import SandboxProcess

    limits = Limits(scratch_bytes=8 * MIB, wall_seconds=5)
    with SandboxProcess.start("sandbox_targets:run_source", limits=limits, scratch=tmp_path) as process:
        process.channel.send({"source": source})
        assert process.wait(30).bound == bound
