"""The four dashboards. Every orchestrator replica reports the same rows as gauges, so the queries use their maximum."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tools.dashboards.panels import AnyPanel, Query, add_panels, distribution, lines, number, page, quantiles


def _sessions_now() -> list[AnyPanel]:
    return [
        number("Running", Query('sum(max by (method) (dressage_sessions{state="running", $N}))')),
        number("Succeeded", Query('sum(max by (method) (dressage_sessions{state="succeeded", $N}))')),
        number("Exhausted", Query('sum(max by (method) (dressage_sessions{state="exhausted", $N}))')),
        number("Failed", Query('sum(max by (method) (dressage_sessions{state="failed", $N}))')),
        number(
            "Time since the last event",
            Query("max(dressage_session_last_event_age_seconds{$N})"),
            unit="s",
            bad_above=1800,
            description="The longest time since the last event of a running session.",
        ),
        number("Taken up after a stop", Query("sum(increase(dressage_workflow_recoveries_total{$N}[$__range]))")),
    ]


def _sessions_over_time() -> list[AnyPanel]:
    return [
        lines(
            "Sessions by state",
            Query("sum by (state) (max by (state, method) (dressage_sessions{$N}))", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Iterations ended, an hour",
            Query(
                "sum by (method, outcome) (rate(dressage_iterations_total{$N}[1h])) * 3600", "{{method}} {{outcome}}"
            ),
        ),
        distribution(
            "Scores of iterations",
            Query("sum by (le) (increase(dressage_judgment_score_bucket{$N}[$__rate_interval]))", "{{le}}"),
            description="Between 0 and 1; a session passes at its threshold, 0.7 by default.",
        ),
        lines(
            "Judges that disagree, an hour",
            Query("sum(rate(dressage_judge_disagreements_total{$N}[1h])) * 3600", "rollouts"),
            description="Rollouts whose judges differ by more than 0.2.",
        ),
        lines(
            "Budgets used up, an hour",
            Query("sum by (kind) (rate(dressage_budget_exhausted_total{$N}[1h])) * 3600", "{{kind}}"),
        ),
        lines(
            "Generated code ended by the sandbox, an hour",
            Query("sum by (reason) (rate(dressage_sandbox_kills_total{$N}[1h])) * 3600", "{{reason}}"),
        ),
    ]


def _searches() -> list[AnyPanel]:
    candidates = "dressage_candidates_total"
    return [
        lines(
            "Candidates, an hour",
            Query(f"sum by (method, outcome) (rate({candidates}{{$N}}[1h])) * 3600", "{{method}} {{outcome}}"),
            description="Candidates of search methods: evaluated, or repeated and answered from the cache.",
        ),
        lines(
            "Candidates per second",
            Query(
                "sum by (environment) (max by (pool, environment) (dressage_search_candidates_per_second{$N}))",
                "{{environment}}",
            ),
            description="Programs and other candidates per second of the searches that run now.",
        ),
        lines(
            "Share from the cache",
            Query(
                f'sum by (method) (rate({candidates}{{outcome="cached", $N}}[1h])) '
                f'/ sum by (method) (rate({candidates}{{outcome="evaluated", $N}}[1h]))',
                "{{method}}",
            ),
            description="Candidates answered from the cache, compared with all evaluated ones.",
        ),
        lines(
            "Episodes, an hour",
            Query(
                "sum by (method, environment) (rate(dressage_episodes_total{$N}[1h])) * 3600",
                "{{method}} {{environment}}",
            ),
            description="Episodes of searches, without those of reports.",
        ),
    ]


def sessions() -> dashboard.Dashboard:
    """Return the dashboard of sessions and their results."""
    board = page("dressage-sessions", "Dressage / Sessions", "Sessions, their progress and their results.")
    sections = [
        ("Now", _sessions_now()),
        ("Over time", _sessions_over_time()),
        ("Searches", _searches()),
    ]
    return add_panels(board, sections)


def _training_now() -> list[AnyPanel]:
    queued = 'max by (pool) (dressage_runs{state="queued", $N})'
    return [
        number("Running", Query('sum(max by (pool) (dressage_runs{state="running", $N}))')),
        number("Waiting", Query(f"sum({queued})")),
        number("Longest wait", Query("max(dressage_run_oldest_queued_seconds{$N})"), unit="s", bad_above=900),
        number("Steps per second", Query("sum(max by (pool, environment) (dressage_training_steps_per_second{$N}))")),
        number("Steps in range", Query("sum(increase(dressage_env_steps_total{$N}[$__range]))")),
        number("Failures in range", Query("sum(increase(dressage_run_failures_total{$N}[$__range]))"), bad_above=10),
    ]


def _training_pools() -> list[AnyPanel]:
    return [
        lines(
            "Runs by pool and state",
            Query("max by (pool, state) (dressage_runs{$N})", "{{pool}} {{state}}"),
            stacked=True,
        ),
        lines(
            "From asking to the trainer's hello",
            *quantiles("dressage_run_queue_seconds", by="pool", legend="{{pool}}"),
            unit="s",
        ),
        lines(
            "Environment steps per second",
            Query("max by (pool, environment) (dressage_training_steps_per_second{$N})", "{{pool}} {{environment}}"),
            description="Of active runs.",
        ),
        lines(
            "Environment steps trained, an hour",
            Query(
                "sum by (pool, environment) (rate(dressage_env_steps_total{$N}[1h])) * 3600", "{{pool}} {{environment}}"
            ),
            description="Counted when an assignment ends.",
        ),
        lines(
            "Attempts that failed, an hour",
            Query("sum by (reason) (rate(dressage_run_failures_total{$N}[1h])) * 3600", "{{reason}}"),
        ),
        lines(
            "Assignments that failed, an hour",
            Query("sum by (cause) (rate(dressage_assignment_failures_total{$N}[1h])) * 3600", "{{cause}}"),
            description="By cause: generated code, the assignment itself, or the infrastructure.",
        ),
    ]


def _training_devices() -> list[AnyPanel]:
    """Return panels of NVIDIA's DCGM exporter, which labels a GPU's use with the pod that holds it."""
    pods = "max by (pod, gpu)"
    return [
        lines(
            "GPU use",
            Query(f"{pods} (DCGM_FI_DEV_GPU_UTIL{{$N}})", "{{pod}} GPU {{gpu}}"),
            unit="percent",
            description="Needs NVIDIA's DCGM exporter.",
        ),
        lines(
            "GPU memory in use",
            Query(f"{pods} (DCGM_FI_DEV_FB_USED{{$N}}) * 1048576", "{{pod}} GPU {{gpu}}"),
            unit="bytes",
        ),
        lines("GPU power", Query(f"{pods} (DCGM_FI_DEV_POWER_USAGE{{$N}})", "{{pod}} GPU {{gpu}}"), unit="watt"),
        lines(
            "Last GPU error",
            Query("max by (pod, gpu) (DCGM_FI_DEV_XID_ERRORS{$N})", "{{pod}} GPU {{gpu}}"),
            description="Number of the last XID error of NVIDIA's driver; 0 for none.",
        ),
    ]


def training() -> dashboard.Dashboard:
    """Return the dashboard of runs, pools and speed."""
    board = page("dressage-training", "Dressage / Training and pools", "Runs by pool: how many, how fast, what fails.")
    sections = [
        ("Now", _training_now()),
        ("Pools", _training_pools()),
        ("GPUs", _training_devices()),
    ]
    return add_panels(board, sections)


def _models_in_range() -> list[AnyPanel]:
    requests = "dressage_llm_requests_total"
    return [
        number("Dollars", Query("sum(increase(dressage_llm_cost_dollars_total{$N}[$__range]))"), unit="currencyUSD"),
        number(
            "Dollars in the last hour",
            Query("sum(increase(dressage_llm_cost_dollars_total{$N}[1h]))"),
            unit="currencyUSD",
        ),
        number("Requests", Query(f"sum(increase({requests}{{$N}}[$__range]))")),
        number(
            "Failed",
            Query(
                f'sum(increase({requests}{{outcome!="ok", $N}}[$__range])) / sum(increase({requests}{{$N}}[$__range]))'
            ),
            unit="percentunit",
            bad_above=0.2,
        ),
        number("Tokens", Query("sum(increase(dressage_llm_tokens_total{$N}[$__range]))")),
        number(
            "From the journal",
            Query("sum(increase(dressage_llm_journal_hits_total{$N}[$__range]))"),
            description="Replies from the journal, which are not paid for again.",
        ),
    ]


def _models_over_time() -> list[AnyPanel]:
    requests = "dressage_llm_requests_total"
    return [
        lines(
            "Dollars an hour by model",
            Query("sum by (model) (rate(dressage_llm_cost_dollars_total{$N}[1h])) * 3600", "{{model}}"),
            unit="currencyUSD",
            stacked=True,
        ),
        lines(
            "Dollars an hour by role",
            Query("sum by (role) (rate(dressage_llm_cost_dollars_total{$N}[1h])) * 3600", "{{role}}"),
            unit="currencyUSD",
            stacked=True,
        ),
        lines(
            "Tokens per second",
            Query(
                "sum by (model, direction) (rate(dressage_llm_tokens_total{$N}[$__rate_interval]))",
                "{{model}} {{direction}}",
            ),
        ),
        lines(
            "Seconds from request to reply",
            *quantiles("dressage_llm_request_seconds", by="model", legend="{{model}}"),
            unit="s",
            description="Retries included.",
        ),
        lines(
            "Requests by outcome, a minute",
            Query(f"sum by (outcome) (rate({requests}{{$N}}[$__rate_interval])) * 60", "{{outcome}}"),
        ),
        lines(
            "Slowest roles, 95th percentile",
            Query(
                "histogram_quantile(0.95, sum by (le, role) (rate(dressage_llm_request_seconds_bucket{$N}[1h])))",
                "{{role}}",
            ),
            unit="s",
        ),
    ]


def models() -> dashboard.Dashboard:
    """Return the dashboard of cost, latency and failures of model calls."""
    board = page(
        "dressage-models", "Dressage / LLM spend and latency", "Language and vision models: money, time, failures."
    )
    sections = [
        ("In range", _models_in_range()),
        ("Over time", _models_over_time()),
    ]
    return add_panels(board, sections)


def _services_services() -> list[AnyPanel]:
    return [
        lines("Pods that answer", Query("sum by (job) (up{$N})", "{{job}}"), span=8),
        lines("Versions", Query("count by (version) (dressage_build_info{$N})", "{{version}}"), span=8),
        lines("Memory", Query("max by (job) (process_resident_memory_bytes{$N})", "{{job}}"), unit="bytes", span=8),
    ]


def _services_grpc() -> list[AnyPanel]:
    calls = "sum by (job, grpc_method)"
    return [
        lines(
            "Calls begun per second",
            Query(f"{calls} (rate(grpc_server_started_total{{$N}}[$__rate_interval]))", "{{job}} {{grpc_method}}"),
        ),
        lines(
            "Calls that ended badly, per second",
            Query(
                'sum by (job, grpc_method, grpc_code) (rate(grpc_server_handled_total{grpc_code!="OK", $N}[$__rate_interval]))',
                "{{job}} {{grpc_method}} {{grpc_code}}",
            ),
        ),
        lines(
            "Seconds that unary calls take, 95th percentile",
            Query(
                "histogram_quantile(0.95, sum by (le, job, grpc_method) "
                '(rate(grpc_server_handling_seconds_bucket{grpc_type="unary", $N}[$__rate_interval])))',
                "{{job}} {{grpc_method}}",
            ),
            unit="s",
        ),
        lines("Calls under way", Query(f"{calls} (grpc_server_in_flight{{$N}})", "{{job}} {{grpc_method}}")),
    ]


def _services_rendering() -> list[AnyPanel]:
    return [
        lines("Frames per second", Query("sum(rate(dressage_render_frames_total{$N}[$__rate_interval]))", "frames")),
        lines("Seconds that a video takes", *quantiles("dressage_render_seconds"), unit="s"),
    ]


def _services_artifact_store() -> list[AnyPanel]:
    return [
        lines(
            "Bytes per second",
            Query(
                "sum by (job, operation) (rate(dressage_artifact_bytes_total{$N}[$__rate_interval]))",
                "{{job}} {{operation}}",
            ),
            unit="Bps",
            span=8,
        ),
        lines(
            "Errors, a minute",
            Query(
                "sum by (job, operation, reason) (rate(dressage_artifact_errors_total{$N}[$__rate_interval])) * 60",
                "{{job}} {{operation}} {{reason}}",
            ),
            span=8,
        ),
        lines(
            "Seconds that an operation takes",
            *quantiles("dressage_artifact_seconds", by="operation", legend="{{operation}}"),
            unit="s",
            span=8,
        ),
    ]


def services() -> dashboard.Dashboard:
    """Return the dashboard of calls, rendering and the artifact store."""
    board = page(
        "dressage-services", "Dressage / Services and store", "gRPC calls, rendering, the artifact store, processes."
    )
    sections = [
        ("Services", _services_services()),
        ("gRPC", _services_grpc()),
        ("Rendering", _services_rendering()),
        ("Artifact store", _services_artifact_store()),
    ]
    return add_panels(board, sections)


PAGES = {"sessions": sessions, "training": training, "models": models, "services": services}
"""By the name of the file in the chart."""
