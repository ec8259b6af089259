"""The four dashboards. Gauges that every orchestrator replica reads off the same rows are taken by their maximum."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from tools.dashboards.panels import Query, distribution, lines, number, page, quantiles, row


def sessions() -> dashboard.Dashboard:
    """What was asked for and what came of it."""
    made = page("dressage-sessions", "Dressage / Sessions", "What was asked for, how far it is, and what came of it.")
    made = (
        made.with_row(row("Now"))
        .with_panel(number("Running", Query('sum(max by (method) (dressage_sessions{state="running", $N}))')))
        .with_panel(number("Succeeded", Query('sum(max by (method) (dressage_sessions{state="succeeded", $N}))')))
        .with_panel(number("Exhausted", Query('sum(max by (method) (dressage_sessions{state="exhausted", $N}))')))
        .with_panel(number("Failed", Query('sum(max by (method) (dressage_sessions{state="failed", $N}))')))
        .with_panel(
            number(
                "Longest silence",
                Query("max(dressage_session_silence_seconds{$N})"),
                unit="s",
                bad_above=1800,
                told="Seconds since the last event of the running session that is silent longest.",
            )
        )
        .with_panel(
            number("Taken up after a stop", Query("sum(increase(dressage_workflow_recoveries_total{$N}[$__range]))"))
        )
    )
    made = (
        made.with_row(row("Over time"))
        .with_panel(
            lines(
                "Sessions by state",
                Query("sum by (state) (max by (state, method) (dressage_sessions{$N}))", "{{state}}"),
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Iterations ended, an hour",
                Query(
                    "sum by (method, outcome) (rate(dressage_iterations_total{$N}[1h])) * 3600",
                    "{{method}} {{outcome}}",
                ),
            )
        )
        .with_panel(
            distribution(
                "Scores of iterations",
                Query("sum by (le) (increase(dressage_judgment_score_bucket{$N}[$__rate_interval]))", "{{le}}"),
                told="Between 0 and 1; a session passes at its threshold, 0.7 unless it says otherwise.",
            )
        )
        .with_panel(
            lines(
                "Judges that disagree, an hour",
                Query("sum(rate(dressage_judge_disagreements_total{$N}[1h])) * 3600", "rollouts"),
                told="Rollouts whose judges differ by more than 0.2.",
            )
        )
        .with_panel(
            lines(
                "Budgets used up, an hour",
                Query("sum by (kind) (rate(dressage_budget_exhausted_total{$N}[1h])) * 3600", "{{kind}}"),
            )
        )
        .with_panel(
            lines(
                "Generated code ended by the sandbox, an hour",
                Query("sum by (reason) (rate(dressage_sandbox_kills_total{$N}[1h])) * 3600", "{{reason}}"),
            )
        )
    )
    return made


def training() -> dashboard.Dashboard:
    """Runs, pools, speed."""
    made = page("dressage-training", "Dressage / Training and pools", "Runs by pool: how many, how fast, what fails.")
    queued = 'max by (pool) (dressage_runs{state="queued", $N})'
    return (
        made.with_row(row("Now"))
        .with_panel(number("Running", Query('sum(max by (pool) (dressage_runs{state="running", $N}))')))
        .with_panel(number("Waiting", Query(f"sum({queued})")))
        .with_panel(
            number("Longest wait", Query("max(dressage_run_oldest_queued_seconds{$N})"), unit="s", bad_above=900)
        )
        .with_panel(
            number(
                "Steps per second",
                Query("sum(max by (pool, environment) (dressage_training_steps_per_second{$N}))"),
            )
        )
        .with_panel(number("Steps in range", Query("sum(increase(dressage_env_steps_total{$N}[$__range]))")))
        .with_panel(
            number("Failures in range", Query("sum(increase(dressage_run_failures_total{$N}[$__range]))"), bad_above=10)
        )
        .with_row(row("Pools"))
        .with_panel(
            lines(
                "Runs by pool and state",
                Query("max by (pool, state) (dressage_runs{$N})", "{{pool}} {{state}}"),
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "From asking to the trainer's hello",
                *quantiles("dressage_run_queue_seconds", by="pool", legend="{{pool}}"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Environment steps per second",
                Query(
                    "max by (pool, environment) (dressage_training_steps_per_second{$N})", "{{pool}} {{environment}}"
                ),
                told="Of the runs under way.",
            )
        )
        .with_panel(
            lines(
                "Environment steps trained, an hour",
                Query(
                    "sum by (pool, environment) (rate(dressage_env_steps_total{$N}[1h])) * 3600",
                    "{{pool}} {{environment}}",
                ),
                told="Counted when a run ends.",
            )
        )
        .with_panel(
            lines(
                "Attempts that failed, an hour",
                Query("sum by (reason) (rate(dressage_run_failures_total{$N}[1h])) * 3600", "{{reason}}"),
                span=24,
            )
        )
    )


def models() -> dashboard.Dashboard:
    """What language models cost, how long they take, how often they fail."""
    made = page(
        "dressage-models", "Dressage / LLM spend and latency", "Language and vision models: money, time, failures."
    )
    requests = "dressage_llm_requests_total"
    return (
        made.with_row(row("In range"))
        .with_panel(
            number("Dollars", Query("sum(increase(dressage_llm_cost_dollars_total{$N}[$__range]))"), unit="currencyUSD")
        )
        .with_panel(
            number(
                "Dollars in the last hour",
                Query("sum(increase(dressage_llm_cost_dollars_total{$N}[1h]))"),
                unit="currencyUSD",
            )
        )
        .with_panel(number("Requests", Query(f"sum(increase({requests}{{$N}}[$__range]))")))
        .with_panel(
            number(
                "Failed",
                Query(
                    f'sum(increase({requests}{{outcome!="ok", $N}}[$__range])) / sum(increase({requests}{{$N}}[$__range]))'
                ),
                unit="percentunit",
                bad_above=0.2,
            )
        )
        .with_panel(number("Tokens", Query("sum(increase(dressage_llm_tokens_total{$N}[$__range]))")))
        .with_panel(
            number(
                "From the journal",
                Query("sum(increase(dressage_llm_journal_hits_total{$N}[$__range]))"),
                told="Replies that a restart did not buy again.",
            )
        )
        .with_row(row("Over time"))
        .with_panel(
            lines(
                "Dollars an hour by model",
                Query("sum by (model) (rate(dressage_llm_cost_dollars_total{$N}[1h])) * 3600", "{{model}}"),
                unit="currencyUSD",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Dollars an hour by role",
                Query("sum by (role) (rate(dressage_llm_cost_dollars_total{$N}[1h])) * 3600", "{{role}}"),
                unit="currencyUSD",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Tokens per second",
                Query(
                    "sum by (model, direction) (rate(dressage_llm_tokens_total{$N}[$__rate_interval]))",
                    "{{model}} {{direction}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Seconds from request to reply",
                *quantiles("dressage_llm_request_seconds", by="model", legend="{{model}}"),
                unit="s",
                told="Retries included.",
            )
        )
        .with_panel(
            lines(
                "Requests by outcome, a minute",
                Query(f"sum by (outcome) (rate({requests}{{$N}}[$__rate_interval])) * 60", "{{outcome}}"),
            )
        )
        .with_panel(
            lines(
                "Slowest roles, 95th percentile",
                Query(
                    "histogram_quantile(0.95, sum by (le, role) (rate(dressage_llm_request_seconds_bucket{$N}[1h])))",
                    "{{role}}",
                ),
                unit="s",
            )
        )
    )


def services() -> dashboard.Dashboard:
    """The services' calls, the renderer, the artifact store."""
    made = page(
        "dressage-services", "Dressage / Services and store", "gRPC calls, rendering, the artifact store, processes."
    )
    calls = "sum by (job, grpc_method)"
    return (
        made.with_row(row("Services"))
        .with_panel(lines("Pods that answer", Query("sum by (job) (up{$N})", "{{job}}"), span=8))
        .with_panel(lines("Versions", Query("count by (version) (dressage_build_info{$N})", "{{version}}"), span=8))
        .with_panel(
            lines(
                "Memory",
                Query("max by (job) (process_resident_memory_bytes{$N})", "{{job}}"),
                unit="bytes",
                span=8,
            )
        )
        .with_row(row("gRPC"))
        .with_panel(
            lines(
                "Calls begun per second",
                Query(f"{calls} (rate(grpc_server_started_total{{$N}}[$__rate_interval]))", "{{job}} {{grpc_method}}"),
            )
        )
        .with_panel(
            lines(
                "Calls that ended badly, per second",
                Query(
                    "sum by (job, grpc_method, grpc_code) "
                    '(rate(grpc_server_handled_total{grpc_code!="OK", $N}[$__rate_interval]))',
                    "{{job}} {{grpc_method}} {{grpc_code}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Seconds that unary calls take, 95th percentile",
                Query(
                    "histogram_quantile(0.95, sum by (le, job, grpc_method) "
                    '(rate(grpc_server_handling_seconds_bucket{grpc_type="unary", $N}[$__rate_interval])))',
                    "{{job}} {{grpc_method}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines("Calls under way", Query(f"{calls} (grpc_server_in_flight{{$N}})", "{{job}} {{grpc_method}}"))
        )
        .with_row(row("Rendering"))
        .with_panel(
            lines("Frames per second", Query("sum(rate(dressage_render_frames_total{$N}[$__rate_interval]))", "frames"))
        )
        .with_panel(lines("Seconds that a video takes", *quantiles("dressage_render_seconds"), unit="s"))
        .with_row(row("Artifact store"))
        .with_panel(
            lines(
                "Bytes per second",
                Query(
                    "sum by (job, operation) (rate(dressage_artifact_bytes_total{$N}[$__rate_interval]))",
                    "{{job}} {{operation}}",
                ),
                unit="Bps",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Errors, a minute",
                Query(
                    "sum by (job, operation, reason) (rate(dressage_artifact_errors_total{$N}[$__rate_interval])) * 60",
                    "{{job}} {{operation}} {{reason}}",
                ),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Seconds that an operation takes",
                *quantiles("dressage_artifact_seconds", by="operation", legend="{{operation}}"),
                unit="s",
                span=8,
            )
        )
    )


PAGES = {"sessions": sessions, "training": training, "models": models, "services": services}
"""By the name of the file in the chart."""
