"""Starts a sandboxed process and monitors it from outside.

One thread per process starts it, polls its memory, threads, scratch folder and clock, ends it when a limit is exceeded,
and reaps it. The same thread must start the process, because the kernel sends the parent-death signal when the starting
thread ends.

The child gets only this: a cleaned environment, /dev/null as input, two pipes, and a bounded buffer for its standard output
and error. It has its own session without a terminal and is killed as a process group.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sandbox import child
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.heartbeat import STACK_SIGNAL, Page, StallWatch, thread_time
from dressage.sandbox.limits import Limits
from dressage.sandbox.output import OutputTail
from dressage.sandbox.pipe import MAX_BYTES, Channel
from dressage.sandbox.scratch import disk_usage
from dressage.sandbox.usage import Usage, overdue, run_delay, usage_of

ExitKind = Literal["ok", "timeout", "starved", "stalled", "memory", "killed", "error"]

_POLL_SECONDS = 0.025
_SCRATCH_POLL_SECONDS = 1.0
_OUTPUT_SECONDS = 5.0
_START_TIMEOUT = 30.0
_PIPE_BYTES = 1 << 20
_STACK_SECONDS = 0.3
_LEADER_ENDED = "its main thread ended while other threads ran"
_BOUND_SIGNALS = (signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSYS)
# Names the folder of custom environments (dressage.envs.custom): cards and models, which sandboxed code reads too.
_ENVIRONMENTS = "DRESSAGE_ENVIRONMENTS"


@dataclass(frozen=True)
class Exit:
    """How a sandboxed process ended."""

    kind: ExitKind
    """ok: by itself, code 0; timeout: wall-clock or processor time; starved: the machine gave it too little processor time;
    stalled: a call of generated code did not return; memory; killed: another limit, `kill`, or an external signal; error: by
    itself, another code (an exception, or no sandbox)."""
    code: int
    """Exit code, or the negative number of the signal."""
    reason: str
    """One sentence; empty when ok."""
    stderr_tail: str
    """The last part of what it wrote to standard output and error, as printable text. Nothing in it is evidence."""
    bound: bool = False
    """Whether it was ended for exceeding a limit or for a forbidden call. Other signals, such as those of crashes, are not
    attributed to the generated code."""


def import_path() -> list[str]:
    """Return the folders of sys.path that a child may import from (and read).

    The current folder and the home folder are excluded unless they contain a package of Dressage, because they contain other
    files too. The folder of this package is always included.
    """
    package_folder = str(Path(child.__file__).resolve().parents[2])
    private = {"/", os.getcwd(), os.path.expanduser("~")}
    entries = [entry or os.getcwd() for entry in sys.path]
    folders = [entry for entry in entries if os.path.exists(entry) and (entry not in private or _has_packages(entry))]
    return list(dict.fromkeys([*folders, package_folder]))


def _check_target(target: str) -> None:
    module, _, function = target.partition(":")
    if not module or not function:
        raise InvalidArgument(field="target", value=target, expected='"module:function"')


def _has_packages(folder: str) -> bool:
    return any(Path(folder).glob("dressage*/__init__.py"))


def _environment(scratch: Path, threads: int, extra: Mapping[str, str], folders: Sequence[str]) -> dict[str, str]:
    count = str(threads)
    pools = (*(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")), "NPROC", "PJRT_NPROC")
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        # Sets of strings iterate in a fixed order, so that a resumed run repeats the same steps.
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "DRESSAGE_SANDBOXED": "1",  # modules of environments of the user's own are imported here only
        # There is no display. Gymnasium imports glfw anyway, which starts a process to search for its library unless
        # PYGLFW_LIBRARY is set.
        "MUJOCO_GL": "disable",
        **_glfw_library(folders),
        **dict.fromkeys(pools, count),
        **extra,
    }


def _with_custom_environments(
    env: Mapping[str, str], read_only: Sequence[Path]
) -> tuple[Mapping[str, str], Sequence[Path]]:
    folder = os.environ.get(_ENVIRONMENTS, "")
    if not folder or not Path(folder).is_dir():
        return env, read_only
    resolved = Path(folder).resolve()
    return {_ENVIRONMENTS: str(resolved), **env}, (*read_only, resolved)


def _glfw_library(folders: Sequence[str]) -> dict[str, str]:
    candidates = (Path(entry) / "glfw" / "x11" / "libglfw.so" for entry in folders)
    return next(({"PYGLFW_LIBRARY": str(path)} for path in candidates if path.is_file()), {})


class SandboxProcess:
    """A running sandboxed process; create it with `start`, end it with `kill` or as a context manager."""

    def __init__(self, *, config: dict[str, Any], environment: dict[str, str], limits: Limits, scratch: Path) -> None:
        """Use `start` instead."""
        self._config, self._environment = config, environment
        self._limits, self._scratch = limits, scratch
        self._popen: subprocess.Popen[bytes] | None = None
        self._start_error: OSError | None = None
        self._violation: tuple[ExitKind, str] | None = None
        self._exit: Exit | None = None
        self._started, self._ended, self._killed = threading.Event(), threading.Event(), threading.Event()
        self._usage = Usage()
        self._begin, self._delayed_before = time.monotonic(), 0.0
        self._awaits_target, self._max_reply_bytes = False, MAX_BYTES
        self._python = sys.executable
        self._companion: Channel | None = None
        self._page = Page() if limits.call_seconds is not None else None
        self._stall = StallWatch(limits.call_seconds or 0.0)
        self.channel: Channel
        """Messages to and from the target."""

    @classmethod
    def start(
        cls,
        target: str | None,
        *,
        limits: Limits,
        scratch: Path,
        preload: Sequence[str] = (),
        read_only: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        packages: Sequence[str] = (),
        threads: int = 1,
        cpus: Iterable[int] | None = None,
        env: Mapping[str, str] | None = None,
        devices: Sequence[Path] = (),
        max_message_bytes: int = MAX_BYTES,
        max_reply_bytes: int = MAX_BYTES,
        allow_unsandboxed: bool = False,
        python: str = "",
        companion: Channel | None = None,
    ) -> SandboxProcess:
        """Start ``target`` in a locked-down process.

        :param target: "module:function"; called after the lock-down with the `Channel` as its only argument. None: the
            process is locked down, imports ``preload`` and waits for `assign`.
        :param limits: enforced by the monitor and by the kernel.
        :param scratch: existing folder, the only one that it may write; its current folder, HOME and TMPDIR.
        :param preload: modules of Dressage to import after the lock-down and before the target.
        :param read_only: further files and folders that it may read.
        :param hidden: files and folders whose files it may not read, wherever they are.
        :param packages: folders of ``sys.path`` instead of this process's own; they must contain this package.
        :param threads: size of the thread pools of numerical libraries.
        :param cpus: processors to run on; None: those of the parent.
        :param env: further variables. Of the parent's environment only ``DRESSAGE_ENVIRONMENTS`` is passed on, and the
            folder that it names may be read.
        :param devices: device files that it may open (those of a GPU).
        :param max_message_bytes: bound for one message, in either direction; ``max_reply_bytes`` for one that it sends.
        :param allow_unsandboxed: run with rlimits only where the kernel lacks a feature; for trusted code.
        :param python: interpreter; empty: the one that runs this process.
        :param companion: the channel to another sandboxed process, which this one gets (`companion`). It is closed here.
        :raises FailedPrecondition: the kernel lacks Landlock or seccomp and ``allow_unsandboxed`` is not set.
        :raises InvalidArgument: a malformed target, or a scratch folder that does not exist.
        """
        if target is not None:
            _check_target(target)
        if not scratch.is_dir():
            raise InvalidArgument(field="scratch", value=str(scratch), expected="an existing folder")
        if threads < 1:
            raise InvalidArgument(field="threads", value=threads, expected="at least 1")
        env, read_only = _with_custom_environments(env or {}, read_only)
        unsandboxed = _without_barriers(allow_unsandboxed)
        scratch = scratch.resolve()
        folders = list(packages) or import_path()
        config = {
            "parent": os.getpid(),
            "target": target,
            "preload": list(preload),
            "max_bytes": max_message_bytes,
            "import_path": folders,
            "scratch": str(scratch),
            "read_only": [str(path.resolve()) for path in read_only],
            "hidden": [str(path) for path in hidden],
            "devices": [str(path) for path in devices],
            "cpus": sorted(cpus) if cpus is not None else None,
            "limits": limits.to_dict(),
            "unsandboxed": unsandboxed,
        }
        environment = _environment(scratch, threads, env, folders)
        process = cls(config=config, environment=environment, limits=limits, scratch=scratch)
        process._python, process._companion = python or sys.executable, companion
        process._awaits_target, process._max_reply_bytes = target is None, max_reply_bytes
        process._launch()
        return process

    def assign(self, target: str) -> None:
        """Give its target to a process that was started without one; wall-clock time counts from this call.

        :param target: "module:function".
        :raises InvalidArgument: a malformed target.
        :raises ChannelClosed: the process has ended.
        """
        _check_target(target)
        self._begin, self._delayed_before = time.monotonic(), run_delay(self.pid)
        self._awaits_target = False
        self.channel.send({"target": target}, timeout=_START_TIMEOUT)

    @property
    def scratch(self) -> Path:
        """The folder that it may write."""
        return self._scratch

    @property
    def pid(self) -> int:
        """Process id of the child."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def peak_memory_bytes(self) -> int:
        """Largest resident size seen so far."""
        return self._usage.peak_memory_bytes

    @property
    def exceeded_memory(self) -> bool:
        """Whether it used more memory than its limit; otherwise the machine's memory was short."""
        return self.peak_memory_bytes > self._limits.memory_bytes

    def poll(self) -> Exit | None:
        """Return its exit, or None while it runs."""
        return self._exit

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait at most ``timeout`` seconds for the end and return its exit; None: it still runs."""
        self._ended.wait(timeout)
        return self._exit

    def kill(self, *, timeout: float = 10.0) -> Exit:
        """End it at once and return its exit; does nothing if it has ended already."""
        self._killed.set()
        self._signal()
        exit_ = self.wait(timeout)
        return exit_ or Exit("killed", -signal.SIGKILL, "it was killed, but the kernel has not ended it yet", "")

    def close(self) -> None:
        """End it and close its channel."""
        self.kill()
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> None:
        to_child_read, to_child_write = os.pipe()
        from_child_read, from_child_write = os.pipe()
        page = None if self._page is None else self._page.descriptor
        config = {**self._config, "read_fd": to_child_read, "write_fd": from_child_write, "heartbeat_fd": page}
        shared = () if self._companion is None else self._companion.release()
        config["companion"] = list(shared)
        # -P, -s and -S with this environment isolate as -I does, and keep PYTHONHASHSEED in force.
        command = [self._python, "-P", "-s", "-S", "-B", child.__file__, json.dumps(config)]
        descriptors = (to_child_read, from_child_write, *shared)
        bounds = {"max_bytes": config["max_bytes"], "max_reply_bytes": self._max_reply_bytes}
        self.channel = Channel(from_child_read, to_child_write, **bounds)
        _widen(from_child_read, to_child_write)
        try:
            passed = descriptors if page is None else (*descriptors, page)
            threading.Thread(target=self._monitor, args=(command, passed), name="sandbox-monitor", daemon=True).start()
            self._started.wait(_START_TIMEOUT)
            if self._start_error is not None:
                raise FailedPrecondition(f"the sandboxed process could not be started: {self._start_error}")
        except BaseException:
            self.channel.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _monitor(self, command: list[str], descriptors: Sequence[int]) -> None:
        try:
            self._popen = popen = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except OSError as error:
            self._start_error = error
            self._started.set()
            return
        self._begin = time.monotonic()
        assert popen.stdout is not None
        output = OutputTail(popen.stdout)
        self._started.set()
        code = self._wait_within_bounds(popen)
        tail = output.text(timeout=_OUTPUT_SECONDS)
        self._page = None
        self._exit = self._describe(code, tail)
        self._ended.set()

    def _wait_within_bounds(self, popen: subprocess.Popen[bytes]) -> int:
        descriptor = _pidfd(popen.pid)
        try:
            return self._poll_within_bounds(popen, descriptor)
        except Exception as error:
            # A process that nothing watches must not run on, and the wait for its end must not be for ever.
            self._violation = "killed", f"it could not be watched: {type(error).__name__}: {error}"
            self._signal()
            return popen.wait()
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _poll_within_bounds(self, popen: subprocess.Popen[bytes], descriptor: int | None) -> int:
        next_scratch = self._begin + _SCRATCH_POLL_SECONDS
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _wait(popen, _POLL_SECONDS, descriptor)
            now = time.monotonic()
            self._usage = usage_of(popen.pid, self._usage)
            violation = self._violation_of_limits(now - self._begin)
            if violation is None and now >= next_scratch:
                next_scratch = now + _SCRATCH_POLL_SECONDS
                if disk_usage(popen.pid, self._scratch, self._limits) > self._limits.scratch_bytes:
                    violation = (
                        "killed",
                        f"its scratch folder exceeds {self._limits.scratch_bytes} bytes",
                    )
            if violation is None and (stall := self._stall_reason(now)) is not None:
                violation = "stalled", stall
                self._write_stacks()
            if violation is not None:
                self._violation = violation
                self._signal()
                return popen.wait()

    def _stall_reason(self, now: float) -> str | None:
        """Return why a call of generated code counts as stalled; None if none does."""
        if self._page is None:
            return None
        beat = self._page.read()
        return self._stall.observe(now, beat, thread_time(self.pid, beat.thread) if beat.calling else None)

    def _write_stacks(self) -> None:
        """Have the process write its stacks before it is ended: the line of the call that stalled."""
        assert self._popen is not None
        self._popen.send_signal(STACK_SIGNAL)
        time.sleep(_STACK_SECONDS)

    def _violation_of_limits(self, elapsed: float) -> tuple[ExitKind, str] | None:
        limits, usage = self._limits, self._usage
        if self._killed.is_set():
            # `kill` was called before the process existed or during its start.
            return "killed", "it was killed by its owner"
        expired = not self._awaits_target and elapsed > (limits.wall_seconds or math.inf)
        if expired and (late := overdue(limits, elapsed, run_delay(self.pid) - self._delayed_before)) is not None:
            return late
        if usage.memory_bytes > limits.memory_bytes:
            return "memory", _memory_reason(usage.memory_bytes, limits)
        if usage.threads > limits.processes:
            return "killed", f"it started {usage.threads} threads; {limits.processes} are allowed"
        if usage.leader_ended:
            return "killed", _LEADER_ENDED
        return None

    def _describe(self, code: int, tail: str) -> Exit:
        violation = self._violation
        leader_ended = violation is not None and violation[1] == _LEADER_ENDED
        if leader_ended and code >= 0:
            violation = None  # it was ending by itself, and threads of libraries end last
        kind, reason = violation or self._cause(code)
        # When the kernel kills a process because memory runs out, its main thread appears to have ended too.
        over_limit = violation is not None and not leader_ended and not self._killed.is_set()
        bound = (
            (over_limit and kind != "starved") or kind in ("timeout", "stalled", "memory") or -code in _BOUND_SIGNALS
        )
        return Exit(kind, code, reason, tail, bound)

    def _cause(self, code: int) -> tuple[ExitKind, str]:
        limits = self._limits
        if code == 0:
            return "ok", ""
        if code == child.EXIT_NO_MEMORY:
            return "memory", _memory_reason(self._usage.memory_bytes, limits)
        if code == child.EXIT_NO_SANDBOX:
            return "error", "the sandbox could not be set up"
        if code > 0:
            return "error", f"it ended with code {code}"
        if self._killed.is_set():
            return "killed", "it was killed by its owner"
        spent = self._usage.cpu_seconds
        if limits.cpu_seconds is not None and (code == -signal.SIGXCPU or spent >= limits.cpu_seconds):
            return "timeout", f"it used more than {limits.cpu_seconds} s of processor time"
        if code == -signal.SIGKILL and self._usage.memory_bytes > limits.memory_bytes // 2:
            return "memory", "the system ended it, most likely because memory ran out"
        return "killed", f"it was ended by {signal.Signals(-code).name}"

    def _signal(self) -> None:
        # os.killpg is not enough: the group does not exist until the child has created its session.
        if self._popen is None or self._popen.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(signal.SIGKILL)


def _pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when our child ends; None where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _wait(popen: subprocess.Popen[bytes], seconds: float, descriptor: int | None) -> int:
    """Wait for the end of a child; `Popen.wait` with a limit would wake up several times in between.

    :raises subprocess.TimeoutExpired: it still runs.
    """
    if descriptor is None:
        return popen.wait(seconds)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(seconds * 1000):
        raise subprocess.TimeoutExpired(popen.args, seconds)
    return popen.wait()


def _memory_reason(seen: int, limits: Limits) -> str:
    return f"it used or asked for more memory than {limits.memory_bytes / 2**20:.0f} MiB ({seen / 2**20:.0f} MiB were in use)"


def _without_barriers(allowed: bool) -> bool:
    features = capabilities()
    if features.sufficient:
        return False
    if allowed:
        return True
    raise FailedPrecondition(
        f"this system lacks {' and '.join(features.missing)}, so generated code is not run here. {features.remedy}",
        reason="SANDBOX_UNAVAILABLE",
    )


def _widen(*descriptors: int) -> None:
    import fcntl

    number = getattr(fcntl, "F_SETPIPE_SZ", None)
    if number is None:
        return
    for descriptor in descriptors:
        # Fewer wake-ups for large messages; users near their pipe quota keep the default size.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, number, _PIPE_BYTES)
