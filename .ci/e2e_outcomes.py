"""A pytest plugin: writes the selected tests, their outcomes and causes of failures to the file `DRESSAGE_E2E_OUTCOMES`.

An interrupted run prints no summary and writes no report. `.ci/e2e.py` reads these lines to list the tests that did not run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def _write(test: str, outcome: str, cause: str = "") -> None:
    with Path(os.environ["DRESSAGE_E2E_OUTCOMES"]).open("a") as file:
        file.write(json.dumps([test, outcome, cause]) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the selected tests."""
    for item in session.items:
        _write(item.nodeid, "selected")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a test's outcome; after a pass, one more line where its fixtures fail to close."""
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        _write(report.nodeid, report.outcome, crash.message.partition("\n")[0] if crash and report.failed else "")
