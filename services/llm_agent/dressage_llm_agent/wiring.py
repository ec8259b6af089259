"""Builds the service from its settings and starts it."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import structlog
from dressage.api.internal.v1 import agent_service_pb2, agent_service_pb2_grpc
from dressage.artifacts.store import ArtifactStore
from dressage.serving.server import GrpcServer, RunningService
from dressage.serving.stores import open_service_store

from dressage_llm_agent.agent import Agent, Limits, Sampling
from dressage_llm_agent.metrics import llm_metrics
from dressage_llm_agent.provider.base import Provider
from dressage_llm_agent.provider.litellm_provider import LitellmProvider
from dressage_llm_agent.provider.redaction import Redactor
from dressage_llm_agent.provider.retrying import RetryingProvider, RetryPolicy
from dressage_llm_agent.provider.vision import Vision
from dressage_llm_agent.recorded import Recordings
from dressage_llm_agent.server import AgentServicer
from dressage_llm_agent.settings import Settings

_log = structlog.get_logger("dressage.llm_agent")


async def start(
    settings: Settings, *, store: ArtifactStore | None = None, provider: Provider | None = None
) -> RunningService:
    """Start the service.

    :param store: replaces the store of ``settings.store_url``.
    :param provider: replaces litellm; it gets retries as well.
    """
    if store is None and settings.store_url:
        store = await asyncio.to_thread(open_service_store, settings.store_url)
    agent = make_agent(settings, store=store, provider=provider)
    server = GrpcServer.from_settings("llm-agent", settings)
    full_name = agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name
    servicer = AgentServicer(agent, tool_seconds=settings.tool_seconds)
    server.add(agent_service_pb2_grpc.add_AgentServiceServicer_to_server, servicer, full_name)

    async def stop() -> None:
        await server.stop()
        # Requests on their way are paid for: their replies belong in the journal (decision 0005).
        await agent.drain(settings.grace_seconds)

    return RunningService(address=await server.start(), stop=stop)


def make_agent(settings: Settings, *, store: ArtifactStore | None = None, provider: Provider | None = None) -> Agent:
    """Return the agent that the settings describe."""
    key = settings.api_key.get_secret_value() if settings.api_key else None
    endpoints = {address: secret.get_secret_value() for address, secret in settings.api_bases.items()}
    redactor = Redactor.from_environment(os.environ, key or "", *endpoints.values())
    vision = Vision(tuple(settings.vision_models), dict(settings.video_dialects))
    inner = provider or LitellmProvider(
        api_base=settings.api_base,
        api_key=key,
        api_bases=endpoints,
        deadline=settings.request_seconds,
        redactor=redactor,
        vision=vision,
    )
    policy = RetryPolicy(settings.attempts, settings.first_wait_seconds, settings.longest_wait_seconds)
    return Agent(
        provider=RetryingProvider(inner, policy, on_retry=lambda text: _log.warning("provider", problem=text)),
        store=store,
        default_model=settings.default_model,
        redactor=redactor,
        metrics=llm_metrics(),
        now=lambda: datetime.now(UTC),
        recordings=Recordings([Path(each) for each in (settings.recordings, *settings.earlier_recordings) if each]),
        limits=Limits(settings.task_seconds, settings.concurrent_requests, settings.concurrent_tasks),
        sampling=Sampling(settings.max_output_tokens, settings.temperature, dict(settings.thinking)),
        vision=vision,
    )
