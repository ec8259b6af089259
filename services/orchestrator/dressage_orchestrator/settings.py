"""What the orchestrator can be told."""

from __future__ import annotations

from pathlib import Path

from dressage.serving.settings import ServingSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServingSettings):
    """Settings of the orchestrator, from ``DRESSAGE_ORCHESTRATOR_*``."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_ORCHESTRATOR_", extra="ignore", frozen=True)

    data_dir: Path = Field(Path("dressage-data"), description="folder of the databases, the lock, secrets and logs")
    database_url: str | None = Field(None, description="SQLAlchemy URL; SQLite in the data folder if not set")
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
    max_run_failures: int = Field(2, ge=0, description="failed attempts of a run that are repeated")
    checkpoint_seconds: float = Field(15.0, gt=0, description="seconds between two checkpoints of a run")
    progress_seconds: float = Field(1.0, ge=0, description="least seconds between two progress events of a run")
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
    benchmark_parallel: int = Field(2, ge=1, le=64, description="sessions of a benchmark at a time")
