"""The orchestrator's Prometheus metrics (names and labels are public; no session id in a label)."""

from __future__ import annotations

from dressage.serving.metrics import sandbox_kills
from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)
_SCORES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

SESSIONS = Gauge("dressage_sessions", "Sessions that are not deleted, by state.", ["state", "method"])
SECONDS_SINCE_LAST_EVENT = Gauge(
    "dressage_session_last_event_age_seconds", "Maximum over running sessions of the seconds since their last event."
)
ITERATIONS = Counter("dressage_iterations", "Iterations that ended.", ["method", "outcome"])
RUNS = Gauge("dressage_runs", "Runs by state.", ["pool", "state"])
RUN_QUEUE_SECONDS = Histogram(
    "dressage_run_queue_seconds",
    "Seconds from the creation of a run to the connection of its trainer.",
    ["pool"],
    buckets=_SECONDS,
)
RUN_OLDEST_QUEUED = Gauge("dressage_run_oldest_queued_seconds", "Age in seconds of the oldest queued run.", ["pool"])
RUN_FAILURES = Counter("dressage_run_failures", "Attempts of runs that failed.", ["reason"])
ASSIGNMENT_FAILURES = Counter(
    "dressage_assignment_failures", "Failures of assignments that trainers reported, by cause.", ["cause"]
)
ENV_STEPS = Counter("dressage_env_steps", "Environment steps trained.", ["pool", "environment"])
STEPS_PER_SECOND = Gauge(
    "dressage_training_steps_per_second",
    "Environment steps per second of the running assignments.",
    ["pool", "environment"],
)
CANDIDATES_PER_SECOND = Gauge(
    "dressage_search_candidates_per_second",
    "Candidates per second of the running searches by trainers, such as programs.",
    ["pool", "environment"],
)
CANDIDATES = Counter("dressage_candidates", "Candidates of search methods, by outcome.", ["method", "outcome"])
EPISODES = Counter("dressage_episodes", "Episodes that search methods have played.", ["method", "environment"])
JUDGMENT_SCORE = Histogram("dressage_judgment_score", "Scores of iterations.", buckets=_SCORES)
BUDGET_EXHAUSTED = Counter("dressage_budget_exhausted", "Sessions that exhausted a budget.", ["kind"])
SESSION_COST = Histogram(
    "dressage_session_cost_dollars",
    "US dollars for the model calls of a session, if all prices are known.",
    ["method"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 50, 100),
)
ENV_STEPS_SAVED = Counter(
    "dressage_env_steps_saved",
    "Environment steps saved because pre-screening rejected rewards before training, or because trainings ended early.",
    ["environment"],
)
WORKFLOW_RECOVERIES = Counter(
    "dressage_workflow_recoveries", "Session workflows that were resumed after an interruption."
)
KUBERNETES_REQUESTS = Counter("dressage_kubernetes_requests", "Requests to the Kubernetes API server.", ["verb"])
SANDBOX_KILLS = sandbox_kills()

# Initialised to 0, so that the first failure appears as an increase.
for _reason in ("TRAINER_FAILED", "TRAINER_EXITED_EARLY", "TRAINER_UNRESPONSIVE"):
    RUN_FAILURES.labels(_reason)
for _cause in ("generated_code", "assignment", "infrastructure"):
    ASSIGNMENT_FAILURES.labels(_cause)
for _kind in ("dollars", "env_steps", "tokens", "wall_time"):
    BUDGET_EXHAUSTED.labels(_kind)
