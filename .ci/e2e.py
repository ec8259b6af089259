#!/usr/bin/env python3
"""Runs the end-to-end tests within a time limit and prints which ran and which were left out.

    .ci/e2e.py SECONDS COMMAND...

The command runs pytest on the files of `E2E_TESTS`, as `make e2e` does. Where it fails, the files with a failure run once
more within the same limit: a shared machine may stand still for longer than a cluster waits, and what is broken fails again.
Whole files run, since a test may look at what an earlier one of its file left behind.

Exit status: 0 if tests passed and none failed, even where the limit left some out; else 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

Outcomes = dict[str, str]  # by test: passed, failed, skipped, or selected where it did not end
KINDS = {"passed": "passed", "failed": "failed", "skipped": "skipped", "selected": "left out"}


def _read(file: Path) -> tuple[Outcomes, dict[str, str]]:
    """Outcomes that the plugin `e2e_outcomes` wrote, and causes of failures; a failure stays one, whatever follows it."""
    outcomes: Outcomes = {}
    causes: dict[str, str] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        test, outcome, cause = json.loads(line)
        if outcomes.get(test) != "failed":
            outcomes[test] = outcome
            causes |= {test: cause} if outcome == "failed" else {}
    return outcomes, causes


def _attempt(command: list[str], deadline: float, files: list[str]) -> tuple[int | None, Outcomes, dict[str, str]]:
    """Run the command until the deadline.

    :param files: the test files to run; empty: the command's own.
    :returns: the command's exit status, None if it was broken off, the outcomes, and the causes of failures.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "outcomes")
        environment = {
            **os.environ,
            "DRESSAGE_E2E_OUTCOMES": str(written),
            "PYTHONPATH": f"{Path(__file__).resolve().parent}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
            "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} -p e2e_outcomes",
        }
        if files:
            environment["E2E_TESTS"] = " ".join(files)
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            code: int | None = process.wait(timeout=max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Before the end of the group: a test that fails as it is killed has not failed.
            outcomes, causes = _read(written)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return code, outcomes, causes


def main(seconds: float, command: list[str]) -> int:
    """Run it, again if it fails, and report; the exit status."""
    deadline = time.monotonic() + seconds
    code, outcomes, causes = _attempt(command, deadline, [])
    if code:
        files = sorted({test.partition("::")[0] for test in causes})
        print(f"e2e: failed, runs once more: {' '.join(files) or 'all of it'}")
        print(*(f"  {test}: {cause}" for test, cause in causes.items()), sep="\n", flush=True)
        code, second, _ = _attempt(command, deadline, files)
        # What the second attempt did not come to keeps its first outcome: a failure is undone by a pass alone.
        outcomes |= {test: outcome for test, outcome in second.items() if outcome != "selected" or test not in outcomes}
    by_kind = {kind: [test for test, outcome in outcomes.items() if outcome == kind] for kind in KINDS}
    print("e2e:", ", ".join(f"{len(by_kind[kind])} {title}" for kind, title in KINDS.items()))
    for kind, title in KINDS.items():
        if by_kind[kind] and (code is None or kind == "failed"):
            print(f"e2e: {title}:", *by_kind[kind], sep="\n  ")
    if code is None:
        print(f"e2e: broken off after {seconds:.0f} s")
    if not by_kind["passed"]:
        print("e2e: no test passed although a cluster is up")
    return 1 if code or by_kind["failed"] or not by_kind["passed"] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the tests end with this script
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
