"""Workflows that run in this process: `reconcile` resumes one without a thread, and no other."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from dressage_orchestrator.lifecycle import workflows


def test_a_workflow_runs_until_its_last_execution_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `reconcile` resumes it again and again: each time the running execution loses the workflow to the next one."""
    monkeypatch.setattr(workflows._Process, "engine", SimpleNamespace(stopping=threading.Event()))
    with workflows._running("s", "s:0"):
        with workflows._running("s", "s:0"):  # the workflow was resumed while it ran
            assert workflows.Workflows._runs_here("s:0")
        assert workflows.Workflows._runs_here("s:0") and not workflows.Workflows._runs_here("s:1")
    assert not workflows.Workflows._runs_here("s:0") and not workflows._Process.running
