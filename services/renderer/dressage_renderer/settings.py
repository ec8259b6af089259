"""Settings of the renderer, from ``DRESSAGE_RENDERER_*`` and the mounted file."""

from __future__ import annotations

from dressage.serving.settings import ServingSettings
from pydantic import Field
from pydantic_settings import SettingsConfigDict


class Settings(ServingSettings):
    """Settings of the renderer."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_RENDERER_", extra="ignore", frozen=True)

    store_url: str = Field("", description="artifact store: a path, file://… or s3://…")
    workers: int = Field(2, ge=1, le=64, description="concurrent videos, each in its own process")
    max_waiting: int = Field(64, ge=0, le=10_000, description="requests that may wait for a worker")
    timeout_seconds: float = Field(300.0, gt=0, le=3600, description="deadline of one video")
