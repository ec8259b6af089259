"""Settings of a trainer, from its command line (launcher) or the environment (pod)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class TrainerSettings(BaseSettings):
    """Settings of one trainer process. The token is read from the environment only, as ``DRESSAGE_RUN_TOKEN``."""

    model_config = SettingsConfigDict(
        env_prefix="DRESSAGE_RUN_", extra="ignore", frozen=True, cli_kebab_case=True, cli_hide_none_type=True
    )

    address: str = Field(description="orchestrator to dial, host:port")
    run: str = Field(description="sessions/{s}/runs/{r}", pattern=r"^sessions/[a-z0-9-]+/runs/[a-z0-9-]+$")
    attempt: int = Field(1, ge=1, description="attempt of the run, or of the first of the pods that follow each other")
    failed_before: int = Field(0, ge=0, description="pods of the same Job that failed before this one")
    interrupted_before: int = Field(0, ge=0, description="pods of the same Job that were interrupted before this one")
    tls_ca: str = Field("", description="certificates (PEM) that identify the orchestrator; no TLS if empty")
    token: SecretStr = Field(description="run token")
    scratch: Path | None = Field(None, description="folder for this run's files; a temporary one if not set")
    scratch_bytes: int = Field(
        0, ge=0, description="how large the folder of this run's files may become, in bytes; 0: as the file system is"
    )
    parent_pid: int | None = Field(None, description="end when this process, the parent, ends")
    deadline_seconds: float = Field(
        0.0, ge=0, description="checkpoint and exit before the process is this old, in seconds; 0: no limit"
    )
    redial_seconds: float = Field(600.0, gt=0, description="give up after this time without the orchestrator")
    allow_unsandboxed: bool = Field(False, description="run generated code even where the kernel lacks a sandbox")
    compiled_cache: Path | None = Field(
        None, description="folder of compiled updates; if not set, the user's cache folder"
    )
    log_format: Literal["json", "text"] = Field("json", description="one JSON object a line, or text for people")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level written")

    @field_validator("failed_before", "interrupted_before", mode="before")
    @classmethod
    def _absent(cls, value: object) -> object:
        # On a Job's first pod their annotations are absent, and the variables are empty strings.
        return value or 0

    @property
    def effective_attempt(self) -> int:
        """The attempt that this process is."""
        return self.attempt + self.failed_before + self.interrupted_before


def take_token_from_environment() -> None:
    """Removes the token from the environment, so that no child process can inherit it."""
    os.environ.pop("DRESSAGE_RUN_TOKEN", None)
