"""Settings of the judge, from ``DRESSAGE_JUDGE_*`` and the mounted file."""

from __future__ import annotations

from dressage.serving.settings import ServingSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServingSettings):
    """What the judge can be told."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_JUDGE_", extra="ignore", frozen=True)

    store_url: str = Field("", description="artifact store: a path, file://… or s3://…")
    llm_agent_address: str = Field("", description="host:port of llm-agent; empty: nothing is looked at")
    renderer_address: str = Field("", description="host:port of renderer; empty: nothing is looked at")
    internal_token: str | None = Field(None, description="bearer token that these services ask for", repr=False)
    looking_seconds: float = Field(900.0, ge=5, le=86_400, description="bound of one call to llm-agent or renderer")
    sandboxes: int = Field(2, ge=1, le=256, description="pieces of generated code run at once")
    max_waiting: int = Field(256, ge=0, le=10_000, description="calls that may wait for a sandbox")
    sandbox_seconds: float = Field(20.0, ge=2, le=3600, description="wall-clock time of one call of generated code")
    scratch: str = Field("", description="folder for the sandboxes' scratch; a temporary one if empty")
    allow_unsandboxed: bool = Field(
        False,
        description="run generated code without a sandbox where this kernel has no Landlock: only for code you trust",
    )
