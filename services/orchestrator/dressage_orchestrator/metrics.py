"""The orchestrator's Prometheus metrics (names and labels are public; no session id in a label)."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)
_SCORES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

SESSIONS = Gauge("dressage_sessions", "Sessions that are not deleted, by state.", ["state", "method"])
ITERATIONS = Counter("dressage_iterations", "Iterations that ended.", ["method", "outcome"])
RUNS = Gauge("dressage_runs", "Runs by state.", ["pool", "state"])
RUN_QUEUE_SECONDS = Histogram(
    "dressage_run_queue_seconds", "Seconds from asking for a run to its trainer's hello.", ["pool"], buckets=_SECONDS
)
RUN_FAILURES = Counter("dressage_run_failures", "Attempts of runs that failed.", ["reason"])
ENV_STEPS = Counter("dressage_env_steps", "Environment steps trained.", ["pool", "environment"])
STEPS_PER_SECOND = Gauge(
    "dressage_training_steps_per_second", "Environment steps per second of the latest report.", ["pool", "environment"]
)
JUDGMENT_SCORE = Histogram("dressage_judgment_score", "Scores of iterations.", buckets=_SCORES)
BUDGET_EXHAUSTED = Counter("dressage_budget_exhausted", "Sessions that used up a budget.", ["kind"])
SESSION_COST = Histogram(
    "dressage_session_cost_dollars",
    "US dollars that the model calls of a session cost, where all prices are known.",
    ["method"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 50, 100),
)
ENV_STEPS_SAVED = Counter(
    "dressage_env_steps_saved", "Environment steps spared by rewards sent back before training.", ["environment"]
)
WORKFLOW_RECOVERIES = Counter("dressage_workflow_recoveries", "Session workflows taken up again after a stop.")
