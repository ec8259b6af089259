"""For each alert: series under which it fires and series under which it must not, as promtool's tests have them."""

from __future__ import annotations

from typing import Any

Series = dict[str, str]

# name of the alert: (when to look, series that make it fire, labels of the alert, series that must not)
CASES: dict[str, tuple[str, Series, dict[str, str], Series]] = {
    "DressageOrchestratorDown": (
        "3m",
        {'up{job="orchestrator", namespace="lab"}': "0x10"},
        {},
        # One of two pods is enough.
        {
            'up{job="orchestrator", namespace="lab", pod="a"}': "0x10",
            'up{job="orchestrator", namespace="lab", pod="b"}': "1x10",
        },
    ),
    "DressageSessionStuck": (
        "3m",
        {'dressage_session_last_event_age_seconds{namespace="lab"}': "1900x10"},
        {},
        {'dressage_session_last_event_age_seconds{namespace="lab"}': "1700x10"},
    ),
    "DressageRunsFailing": (
        "32m",
        {'dressage_run_failures_total{namespace="lab", reason="TRAINER_FAILED"}': "0+0.2x40"},
        {"reason": "TRAINER_FAILED"},
        {'dressage_run_failures_total{namespace="lab", reason="TRAINER_FAILED"}': "0+0.05x40"},
    ),
    "DressageQueueTooLong": (
        "10m",
        {'dressage_run_oldest_queued_seconds{namespace="lab", pool="gpu"}': "1000x20"},
        {"pool": "gpu"},
        {
            'dressage_run_oldest_queued_seconds{namespace="lab", pool="gpu"}': "100x20",
            # Nineteen of twenty began within a minute.
            'dressage_run_queue_seconds_bucket{namespace="lab", pool="gpu", le="60"}': "0+19x20",
            'dressage_run_queue_seconds_bucket{namespace="lab", pool="gpu", le="3600"}': "0+20x20",
            'dressage_run_queue_seconds_bucket{namespace="lab", pool="gpu", le="+Inf"}': "0+20x20",
        },
    ),
    "DressageModelCallsFailing": (
        "18m",
        {
            'dressage_llm_requests_total{namespace="lab", provider="p", model="p/m", role="r", outcome="ok"}': "0+7x20",
            'dressage_llm_requests_total{namespace="lab", provider="p", model="p/m", role="r", outcome="x"}': "0+3x20",
        },
        {"provider": "p", "model": "p/m"},
        {
            'dressage_llm_requests_total{namespace="lab", provider="p", model="p/m", role="r", outcome="ok"}': "0+9x20",
            'dressage_llm_requests_total{namespace="lab", provider="p", model="p/m", role="r", outcome="x"}': "0+1x20",
        },
    ),
    "DressageBudgetBurn": (
        "62m",
        {'dressage_llm_cost_dollars_total{namespace="lab", model="a"}': "0+0.5x70"},
        {},
        {'dressage_llm_cost_dollars_total{namespace="lab", model="a"}': "0+0.3x70"},
    ),
    "DressageStoreErrors": (
        "12m",
        {'dressage_artifact_errors_total{namespace="lab", job="judge", operation="put", reason="x"}': "0+1x20"},
        {"job": "judge"},
        {'dressage_artifact_errors_total{namespace="lab", job="judge", operation="put", reason="x"}': "0+0.2x20"},
    ),
    "DressageSandboxKills": (
        "32m",
        {'dressage_sandbox_kills_total{namespace="lab", reason="memory"}': "0+0.5x40"},
        {"reason": "memory"},
        {'dressage_sandbox_kills_total{namespace="lab", reason="memory"}': "0+0.2x40"},
    ),
}

# Healthy series of everything else, so that an alert is tested alone.
_HEALTHY = {'up{job="orchestrator", namespace="lab", pod="z"}': "1x90"}


def promtool_tests(rules: str, alerts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A file for `promtool test rules`."""
    tests = []
    for name, (when, firing, labels, calm) in CASES.items():
        others = {} if name == "DressageOrchestratorDown" else _HEALTHY
        severity = alerts[name]["labels"]["severity"]
        expected = [{"exp_labels": {**labels, "severity": severity}}]
        for series, alerts_expected in ((firing, expected), (calm, [])):
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": key, "values": values} for key, values in {**others, **series}.items()],
                    "alert_rule_test": [{"eval_time": when, "alertname": name, "exp_alerts": alerts_expected}],
                }
            )
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}
