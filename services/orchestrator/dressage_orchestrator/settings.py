"""Settings of the orchestrator."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from dressage.serving.settings import ServingSettings
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict


class Settings(ServingSettings):
    """Settings of the orchestrator, from environment variables ``DRESSAGE_ORCHESTRATOR_*``."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_ORCHESTRATOR_", extra="ignore", frozen=True)

    data_dir: Path = Field(Path("dressage-data"), description="folder of the databases, the lock, secrets and logs")
    database_url: str | None = Field(
        None, description="postgresql://user:password@host/name; SQLite in the data folder if not set", repr=False
    )
    migrate_on_start: bool = Field(
        True,
        description="create or upgrade the tables at start; false: only with `python -m dressage_orchestrator migrate`",
    )
    executor_name: str = Field(
        "",
        pattern=r"^[A-Za-z0-9-]{0,80}$",
        description="name of this server among those that share the database, for example the pod's name",
    )
    heartbeat_seconds: float = Field(3.0, gt=0, le=60, description="seconds between two heartbeats, on PostgreSQL")
    lease_seconds: float = Field(
        15.0, ge=1, le=3600, description="seconds without a heartbeat after which other servers take over"
    )
    run_token_secret: SecretStr | None = Field(
        None, min_length=16, description="signs run tokens; kept in the database or the data folder if not set"
    )
    store_url: str | None = Field(None, description="artifact store; a folder of the data folder if not set")
    llm_agent_address: str = Field("127.0.0.1:7101", description="host:port of llm-agent")
    judge_address: str = Field("127.0.0.1:7102", description="host:port of judge")
    renderer_address: str = Field("127.0.0.1:7103", description="host:port of renderer")
    llm_agent_token: SecretStr | None = Field(None, description="bearer token of this service at llm-agent")
    judge_token: SecretStr | None = Field(None, description="bearer token of this service at judge")
    renderer_token: SecretStr | None = Field(None, description="bearer token of this service at renderer")
    services_tls_ca_file: Path | None = Field(
        None, description="CA certificates (PEM) that verify llm-agent, judge and renderer; no TLS to them if not set"
    )
    principals_file: Path | None = Field(None, description="TOML file of principals (docs/operations.md)")
    oidc_issuer: str = Field("", description="issuer of signed tokens (OpenID Connect); empty: none are accepted")
    oidc_audience: str = Field("", description="audience of signed tokens")
    oidc_jwks_url: str = Field(
        "",
        pattern="^(https?://.*)?$",
        description="address of the issuer's keys; empty: OIDC_ISSUER/.well-known/openid-configuration states it",
    )
    oidc_role_claim: str = Field("dressage_role", description="claim with the role: viewer, user or admin, or a list")
    oidc_default_role: Literal["", "viewer", "user"] = Field(
        "", description="role of valid tokens without that claim; empty: they are refused"
    )
    quota_running_sessions: int | None = Field(
        None, ge=0, description="running sessions of a principal; none: no limit"
    )
    quota_cores: int | None = Field(None, ge=0, description="cores of a principal's running sessions")
    quota_dollars: float | None = Field(None, ge=0, description="dollars of a principal in 30 days")
    quota_artifact_bytes: int | None = Field(None, ge=0, description="bytes stored for a principal's sessions")
    requests_per_second: float | None = Field(None, gt=0, description="sustained rate of a principal's calls")
    open_streams: int = Field(
        64, ge=1, description="watches and downloads of a principal at the same time, except of the API's own token"
    )
    elicit_dollars_per_day: float = Field(10.0, ge=0, description="dollars of all elicitations in a day")
    default_model: str = Field("template/v1", min_length=1, description="default model of sessions")
    default_pool: str = Field("local", pattern=r"^[a-z][a-z0-9-]{0,62}$", description="default pool of runs")
    max_parallel_runs: int = Field(
        1, ge=1, le=256, description="maximum number of local trainers; the cores are divided among them"
    )
    trainer_command: tuple[str, ...] = Field((), description="command of a trainer; dressage_trainer if empty")
    max_running_sessions: int = Field(
        100,
        ge=0,
        le=100_000,
        description="sessions that run at once, on all servers that share the database; the others wait in the order of their "
        "requests; 0: no limit",
    )
    run_token_seconds: float = Field(14 * 24 * 3600.0, gt=0, description="validity of a run token")
    hello_seconds: float = Field(60.0, gt=0, description="time for a trainer to connect")
    stop_seconds: float = Field(15.0, ge=0, description="time for a trainer to stop before it is killed")
    max_run_failures: int = Field(2, ge=0, description="number of failures after which an assignment is retried")
    run_idle_seconds: float = Field(
        60.0, ge=0, le=86400, description="how long a run may be idle before it is released"
    )
    run_deadline_seconds: float = Field(
        0.0, description="how long a trainer may run before another one continues: at least 60, or 0 for no limit"
    )
    checkpoint_seconds: float = Field(15.0, gt=0, description="seconds between two checkpoints of a training")
    progress_seconds: float = Field(1.0, ge=0, description="minimum seconds between two progress events of a training")
    wait_seconds: float = Field(30.0, gt=0, description="polling interval of a waiting workflow")
    call_seconds: float = Field(900.0, gt=0, description="deadline of one call of judge or renderer")
    task_seconds: float = Field(7200.0, gt=0, description="deadline of one task of llm-agent, with its tool calls")
    max_repairs: int = Field(
        5, ge=0, le=50, description="maximum number of repairs of generated code before the session fails"
    )
    max_reviews: int = Field(3, ge=0, le=3, description="maximum rounds of code review for generated code; 0: none")
    approval_seconds: float = Field(600.0, gt=0, description="polling interval of a session that waits for approval")
    recover: bool = Field(True, description="resume pending work; false: a read-only server without workflows")
    hold: bool = Field(
        False,
        description="leave the sessions and benchmarks of earlier servers interrupted until a request concerns them; "
        "SQLite only",
    )
    launcher: Literal["local", "kubernetes"] = Field(
        "local", description="how trainers are started: as local processes or as Jobs"
    )
    advertised_address: str | None = Field(
        None,
        description="host:port that trainers connect to, for example of a Service; the listening address if not set",
    )
    trainer_tls_ca_file: Path | None = Field(
        None, description="CA certificates (PEM) with which trainers verify the advertised address; no TLS if not set"
    )
    kubernetes_namespace: str | None = Field(None, description="namespace of the Jobs; that of this pod if not set")
    kubernetes_pools_file: Path | None = Field(None, description="JSON file of pools (docs/kubernetes.md)")
    kubernetes_instance: str = Field(
        "dressage",
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$",
        description="label value that identifies the Jobs of this installation",
    )
    kubernetes_owner: str | None = Field(None, description="ConfigMap that owns the Jobs")
    kubernetes_requests_per_second: float = Field(
        10.0, gt=0, le=1000, description="sustained rate of requests to the API server"
    )
    kubernetes_burst: int = Field(20, ge=1, le=1000, description="burst of requests to the API server")
    kubernetes_relist_seconds: float = Field(45.0, ge=1, le=600, description="seconds between two full lists of Jobs")
    benchmark_parallel: int = Field(2, ge=1, le=64, description="maximum number of concurrent sessions of a benchmark")

    retention_seconds: float = Field(
        3600.0, ge=0, description="seconds between two removals of what the retention settings name; 0: never"
    )
    retention_deleted_days: float = Field(
        30.0, ge=0, le=36_500, description="days after which a deleted session and its artifacts are removed"
    )
    retention_ended_days: float = Field(
        0.0, ge=0, le=36_500, description="days after which an ended session is deleted; 0: never"
    )
    retention_history_days: float = Field(
        30.0,
        ge=0,
        le=36_500,
        description="days after which an ended session loses its workflow history, records of reports and trainers' logs",
    )
    retention_events_days: float = Field(
        90.0, ge=0, le=36_500, description="days after which an ended session loses its events, except the last"
    )
    retention_request_days: float = Field(
        30.0, ge=1, le=36_500, description="days for which a repeated request_id is recognised"
    )
    retention_unreferenced_days: float = Field(
        30.0, ge=1, le=36_500, description="age in days at which artifacts without a session are removed"
    )
    retention_gap_days: float = Field(
        7.0,
        ge=0,
        le=36_500,
        description="days without a server after which nothing is removed until `dressage gc --force`, as the clock may be "
        "wrong; 0: any number",
    )

    @field_validator("run_deadline_seconds")
    @classmethod
    def _long_enough_for_a_checkpoint(cls, value: float) -> float:
        # Attempts that end at their deadline are not counted as failures; without progress they would be retried forever.
        if value != 0 and not value >= 60:
            raise ValueError("must be 0 or at least 60 seconds")
        return value
