"""Settings of the service, from ``DRESSAGE_LLM_AGENT_…`` and the mounted file."""

from __future__ import annotations

from typing import Literal

from dressage.serving.settings import ServingSettings
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from dressage_llm_agent.provider.vision import VISION_MODELS, Dialect
from dressage_llm_agent.template import MODEL

Thinking = Literal["", "off", "minimal", "low", "medium", "high", "xhigh", "max"]


class Settings(ServingSettings):
    """Settings of llm-agent.

    litellm reads the keys of single providers from their own variables (``OPENAI_API_KEY``, …).
    """

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_LLM_AGENT_", extra="ignore", frozen=True)

    store_url: str = Field("", description="artifact store for the journal: a path or s3://bucket/prefix; empty: none")
    default_model: str = Field(MODEL, description="model of tasks without one")
    recordings: str = Field("", description="folder of recorded sessions, for models recorded/NAME; empty: none")
    earlier_recordings: tuple[str, ...] = Field((), description="further such folders, for recordings that it lacks")
    api_base: str | None = Field(None, description="address of an OpenAI-compatible server, for all models")
    api_key: SecretStr | None = Field(None, description="key for all models")
    api_bases: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="further addresses that sessions may choose for single roles, each with its key; empty key: the provider's",
    )
    request_seconds: float = Field(900.0, gt=0, le=3600, description="deadline of one request to a provider")
    task_seconds: float = Field(7200.0, gt=0, le=86_400, description="deadline of a whole task")
    tool_seconds: float = Field(120.0, gt=0, le=3600, description="deadline for a tool's result from the caller")
    attempts: int = Field(4, ge=1, le=10, description="maximum number of requests for one reply")
    first_wait_seconds: float = Field(1.0, ge=0, le=60, description="wait before the second attempt; doubles each time")
    longest_wait_seconds: float = Field(60.0, ge=0, le=600, description="longest wait between two attempts")
    concurrent_requests: int = Field(8, ge=1, le=256, description="concurrent requests to providers")
    concurrent_tasks: int = Field(64, ge=1, le=4096, description="concurrent tasks; more are refused")
    max_output_tokens: int | None = Field(None, ge=256, le=200_000, description="limit of a reply; none: the model's")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature; none: the model's default")
    thinking: dict[str, Thinking] = Field(
        default_factory=dict,
        description="reasoning effort by role: off, minimal, low, medium, high, xhigh, max; absent: the model's default",
    )
    vision_models: list[str] = Field(
        list(VISION_MODELS), description="name patterns of vision models, in addition to those in litellm's tables"
    )
    video_dialects: dict[str, Dialect] = Field(
        default_factory=dict,
        description="form of episodes by name pattern of models: video, video_url, grid, frames; absent: depends on the model",
    )
