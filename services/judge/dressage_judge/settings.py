"""Settings of the judge, from ``DRESSAGE_JUDGE_*`` and the mounted file."""

from __future__ import annotations

from pathlib import Path

from dressage.serving.settings import ServingSettings
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict


class Settings(ServingSettings):
    """Settings of the judge."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_JUDGE_", extra="ignore", frozen=True)

    store_url: str = Field("", description="artifact store: a path, file://… or s3://…")
    llm_agent_address: str = Field("", description="host:port of llm-agent; empty: no video judging")
    renderer_address: str = Field("", description="host:port of renderer; empty: no video judging")
    llm_agent_token: SecretStr | None = Field(None, description="bearer token of this service at llm-agent")
    renderer_token: SecretStr | None = Field(None, description="bearer token of this service at renderer")
    services_tls_ca_file: Path | None = Field(
        None, description="CA certificates (PEM) that verify llm-agent and renderer; no TLS to them if not set"
    )
    video_seconds: float = Field(900.0, ge=5, le=86_400, description="deadline of one call to llm-agent or renderer")
    sandboxes: int = Field(2, ge=1, le=256, description="concurrent runs of generated code")
    max_waiting: int = Field(256, ge=0, le=10_000, description="calls that may wait for a sandbox")
    sandbox_seconds: float = Field(20.0, ge=2, le=3600, description="wall-clock limit of one run of generated code")
    scratch: str = Field("", description="folder for the sandboxes' scratch; a temporary one if empty")
    allow_unsandboxed: bool = Field(
        False,
        description="run generated code without a sandbox if the kernel has no Landlock: only for trusted code",
    )
