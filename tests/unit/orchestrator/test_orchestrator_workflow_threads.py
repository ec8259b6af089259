"""Workflows of this process: `reconcile` resumes one without a thread, and no other; what the engine logs."""

from __future__ import annotations

import io
import logging
import threading
from types import SimpleNamespace

import pytest
from dbos._logger import init_logger
from dressage.serving import logs
from dressage_orchestrator.lifecycle import workflows


def test_a_workflow_runs_until_its_last_execution_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `reconcile` resumes it again and again: each time the running execution loses the workflow to the next one."""
    monkeypatch.setattr(workflows._Process, "engine", SimpleNamespace(stopping=threading.Event()))
    with workflows._running("s", "s:0"):
        with workflows._running("s", "s:0"):  # the workflow was resumed while it ran
            assert workflows.Workflows._runs_here("s:0")
        assert workflows.Workflows._runs_here("s:0") and not workflows.Workflows._runs_here("s:1")
    assert not workflows.Workflows._runs_here("s:0") and not workflows._Process.running


def test_the_workflow_engine_logs_where_the_services_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal that shows a session shows no lines of the library."""
    loggers = [logging.getLogger(), logging.getLogger("dbos")]
    for logger in loggers:  # restored at the end of the test
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(loggers[1], "propagate", loggers[1].propagate)
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    init_logger()
    loggers[1].warning("not owned")
    assert stream.getvalue().count("not owned") == 1 and "not owned" not in capsys.readouterr().err
