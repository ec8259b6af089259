"""Run tokens, pages, and trainers as child processes: bounded, clean, killed when they must be."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from dressage.errors import InvalidArgument, Unauthenticated
from dressage_orchestrator.api.paging import PageTokens
from dressage_orchestrator.launch.local import LocalLauncher, trainer_environment
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Launch
from dressage_orchestrator.launch.tokens import RunTokens, load_or_create_secret
from hypothesis import example, given
from hypothesis import strategies as st

RUN = "sessions/s/runs/r1"


@given(st.text(max_size=80))
def test_no_other_token_is_accepted(token: str) -> None:
    tokens = RunTokens(b"k" * 16)
    good = tokens.make(RUN, 1, expiry=1000)
    tokens.check(good, RUN, 1, now=999)
    if token != good:
        with pytest.raises(Unauthenticated):
            tokens.check(token, RUN, 1, now=0)


def test_tokens_are_of_one_run_attempt_time_and_secret(tmp_path: Path) -> None:
    secret = load_or_create_secret(tmp_path)
    assert load_or_create_secret(tmp_path) == secret and (tmp_path / "run_token.secret").stat().st_mode & 0o077 == 0
    good = RunTokens(secret).make(RUN, 2, expiry=1000)
    for tokens, run, attempt, now in (
        (RunTokens(secret), RUN + "x", 2, 0),
        (RunTokens(secret), RUN, 1, 0),
        (RunTokens(secret), RUN, 2, 1001),
        (RunTokens(b"x" * 32), RUN, 2, 0),
    ):
        with pytest.raises(Unauthenticated):
            tokens.check(good, run, attempt, now=now)
    with pytest.raises(Unauthenticated):
        RunTokens(secret).check(good.replace("1000", "9000"), RUN, 2, now=0)


PAGES = PageTokens(b"s" * 32)


@given(st.text(max_size=60))
@example("NQ")  # once read as the position 5
def test_invalid_page_tokens_are_rejected(token: str) -> None:
    assert PAGES.decode(PAGES.encode([1, "a"], "q", 1), "q", 1) == [1, "a"]
    if token:
        with pytest.raises(InvalidArgument):
            PAGES.decode(token, "q", 1)
    with pytest.raises(InvalidArgument):
        PAGES.decode(PAGES.encode([1, "a"], "q", 1), "q", 2)


def test_a_trainer_inherits_no_key() -> None:
    given_ = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "k",
        "DRESSAGE_TRAINER_X": "1",
        "LC_ALL": "C",
    }
    kept = trainer_environment(given_, "token")
    assert kept == {"PATH": "/bin", "DRESSAGE_TRAINER_X": "1", "LC_ALL": "C", "DRESSAGE_RUN_TOKEN": "token"}


class Bench:
    """A launcher whose trainers run the given Python."""

    def __init__(self, folder: Path, program: str, *, max_parallel: int = 2, hello: float = 20.0) -> None:
        self.ended: list[AttemptResult] = []
        self.done = asyncio.Event()
        self.folder = folder
        # `--` options follow the program text, as they would follow a module's name.
        self.launcher = LocalLauncher(
            log_folder=folder,
            on_result=self.on_result,
            max_parallel=max_parallel,
            hello_seconds=hello,
            stop_seconds=0.5,
            command=(sys.executable, "-S", "-c", program),
        )

    async def on_result(self, word: AttemptResult) -> None:
        self.ended.append(word)
        self.done.set()

    def submit(self, run: str = RUN, attempt: int = 1, *, deadline: float = 0.0) -> None:
        async def starting() -> bool:
            return True

        self.launcher.submit(Launch(run, attempt, "127.0.0.1:1", "secret-token", deadline_seconds=deadline), starting)


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("pass", ExitKind.DONE),
        ("raise SystemExit(42)", ExitKind.FAILED),
        ("raise SystemExit(75)", ExitKind.CHECKPOINTED),
        ("import os; print('my token is', os.environ['DRESSAGE_RUN_TOKEN']); raise ValueError('why')", ExitKind.FAILED),
        ("import os; os.kill(os.getpid(), 9)", ExitKind.FAILED),
    ],
)
async def test_exit_codes_are_understood_and_the_tail_hides_the_token(
    tmp_path: Path, program: str, kind: ExitKind
) -> None:
    bench = Bench(tmp_path, program)
    bench.submit()
    await asyncio.wait_for(bench.done.wait(), 20)
    assert bench.ended[0].kind is kind
    assert "secret-token" not in bench.ended[0].message
    if "why" in program:
        assert "ValueError: why" in bench.ended[0].message and "[token]" in bench.ended[0].message


@pytest.mark.parametrize(("deadline", "given_"), [(0.0, None), (90.0, "90")])
async def test_a_trainer_is_given_its_deadline(tmp_path: Path, deadline: float, given_: str | None) -> None:
    program = "import os; print('deadline', os.environ.get('DRESSAGE_RUN_DEADLINE_SECONDS'))"
    bench = Bench(tmp_path, program)
    bench.submit(deadline=deadline)
    await asyncio.wait_for(bench.done.wait(), 20)
    assert f"deadline {given_}\n" in next(tmp_path.glob("*.log")).read_text()


async def test_an_unresponsive_trainer_is_killed_with_its_children(tmp_path: Path) -> None:
    # One write a process: what print writes in two parts can mix with the other's.
    program = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
    bench = Bench(tmp_path, program, hello=1.0)
    bench.submit()
    await asyncio.wait_for(bench.done.wait(), 20)
    assert bench.ended[0].kind is ExitKind.NO_HELLO and "no hello within 1 s" in bench.ended[0].message
    pids = [int(line) for line in next(tmp_path.glob("*.log")).read_text().splitlines() if line.isdigit()]
    assert pids
    async with asyncio.timeout(20):  # a killed child ends when it gets a processor next
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_slots_are_bounded_and_stop_frees_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "import time; print('up', flush=True); time.sleep(600)", max_parallel=2)
    assert bench.launcher.cores("any") == max(1, len(os.sched_getaffinity(0)) // 2)
    names = [f"sessions/s/runs/r{i}" for i in range(3)]
    for name in names:
        bench.submit(name)
        bench.submit(name)  # the same attempt again is left as it is
    up = lambda: sum("up" in path.read_text() for path in tmp_path.glob("*.log"))  # noqa: E731
    async with asyncio.timeout(20):
        while up() < 2:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert up() == 2
        await bench.launcher.stop(names[0])
        while up() < 3:
            await asyncio.sleep(0.05)
        await bench.launcher.close()
    assert bench.ended == []  # who is stopped is not reported as ended
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that ends meanwhile
            assert "secret" not in " ".join(process.cmdline())
