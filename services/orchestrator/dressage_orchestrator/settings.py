"""What the orchestrator can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from dressage.serving.settings import ServingSettings
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict


class Settings(ServingSettings):
    """Settings of the orchestrator, from ``DRESSAGE_ORCHESTRATOR_*``."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_ORCHESTRATOR_", extra="ignore", frozen=True)

    data_dir: Path = Field(Path("dressage-data"), description="folder of the databases, the lock, secrets and logs")
    database_url: str | None = Field(
        None, description="postgresql://user:password@host/name; SQLite in the data folder if not set", repr=False
    )
    migrate_on_start: bool = Field(
        True, description="make or change the tables at start; false: `python -m dressage_orchestrator migrate` does"
    )
    executor_name: str = Field(
        "",
        pattern=r"^[A-Za-z0-9-]{0,80}$",
        description="this server's name among others on the database: the pod's name",
    )
    heartbeat_seconds: float = Field(3.0, gt=0, le=60, description="seconds between two signs of life, on PostgreSQL")
    lease_seconds: float = Field(
        15.0, ge=1, le=3600, description="a server that gave no sign of life for so long is taken over from"
    )
    run_token_secret: SecretStr | None = Field(
        None, min_length=16, description="signs run tokens; kept in the database or the data folder if not set"
    )
    store_url: str | None = Field(None, description="artifact store; a folder of the data folder if not set")
    llm_agent_address: str = Field("127.0.0.1:7101", description="host:port of llm-agent")
    judge_address: str = Field("127.0.0.1:7102", description="host:port of judge")
    renderer_address: str = Field("127.0.0.1:7103", description="host:port of renderer")
    internal_token: str | None = Field(None, description="bearer token that the internal services ask for", repr=False)
    default_model: str = Field("template/v1", min_length=1, description="model of sessions that name none")
    default_pool: str = Field("local", pattern=r"^[a-z][a-z0-9-]{0,62}$", description="pool of runs that name none")
    max_parallel_runs: int = Field(1, ge=1, le=256, description="trainers at a time; the cores are divided among them")
    trainer_command: tuple[str, ...] = Field((), description="program that starts a trainer; dressage_trainer if empty")
    run_token_seconds: float = Field(14 * 24 * 3600.0, gt=0, description="how long a run's token is good for")
    hello_seconds: float = Field(60.0, gt=0, description="how long a trainer may take to say hello")
    stop_seconds: float = Field(15.0, ge=0, description="how long a trainer may take to stop before it is killed")
    max_run_failures: int = Field(2, ge=0, description="failures of an assignment that are repeated")
    run_idle_seconds: float = Field(
        60.0, ge=0, le=86400, description="how long a trainer may wait for an assignment before it is given back"
    )
    run_deadline_seconds: float = Field(
        0.0, description="how long a trainer may work before a fresh one continues: at least 60, or 0 for no bound"
    )
    checkpoint_seconds: float = Field(15.0, gt=0, description="seconds between two checkpoints of a training")
    progress_seconds: float = Field(1.0, ge=0, description="least seconds between two progress events of a training")
    wait_seconds: float = Field(30.0, gt=0, description="how often a waiting workflow looks although nothing woke it")
    call_seconds: float = Field(900.0, gt=0, description="deadline of one task of llm-agent, judge or renderer")
    max_repairs: int = Field(5, ge=0, le=50, description="repairs of generated code before the session fails")
    max_reviews: int = Field(3, ge=0, le=3, description="rounds of code review of what a model wrote; 0: none")
    approval_seconds: float = Field(
        600.0, gt=0, description="how often a session that waits for approval looks by itself"
    )
    recover: bool = Field(
        True, description="go on with what was under way; false: a server for reading, that runs none"
    )
    launcher: Literal["local", "kubernetes"] = Field("local", description="trainers: processes here, or Jobs")
    advertised_address: str | None = Field(
        None, description="host:port that trainers dial, a Service's say; what is listened on if not set"
    )
    trainer_tls_ca_file: Path | None = Field(
        None, description="certificates (PEM) by which trainers know the advertised address; no TLS if not set"
    )
    kubernetes_namespace: str | None = Field(None, description="namespace of the Jobs; this pod's own if not set")
    kubernetes_pools_file: Path | None = Field(None, description="JSON file of pools (docs/kubernetes.md)")
    kubernetes_instance: str = Field(
        "dressage", pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$", description="tells our Jobs from others"
    )
    kubernetes_owner: str | None = Field(None, description="ConfigMap that owns the Jobs and is to outlive any pod")
    kubernetes_requests_per_second: float = Field(
        10.0, gt=0, le=1000, description="requests to the API server, lasting"
    )
    kubernetes_burst: int = Field(20, ge=1, le=1000, description="requests to the API server at once")
    kubernetes_relist_seconds: float = Field(45.0, ge=1, le=600, description="seconds between two full lists of Jobs")
    benchmark_parallel: int = Field(2, ge=1, le=64, description="sessions of a benchmark at a time")

    @field_validator("run_deadline_seconds")
    @classmethod
    def _long_enough_for_a_checkpoint(cls, value: float) -> float:
        # Attempts that end at their deadline are not counted: one too short for any progress would be repeated for ever.
        if value != 0 and not value >= 60:
            raise ValueError("must be 0 or at least 60 seconds")
        return value
