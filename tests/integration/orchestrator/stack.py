"""An orchestrator in this process between scripted neighbours."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from dressage.api.v1 import (
    artifact_service_pb2_grpc,
    benchmark_service_pb2_grpc,
    environment_service_pb2_grpc,
    intent_service_pb2_grpc,
    maintenance_service_pb2_grpc,
    session_service_pb2_grpc,
)
from dressage.artifacts import ArtifactStore, DirectoryStore
from dressage.serving.channels import connect
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.wiring import start

from tests.integration.orchestrator.fakes import Neighbours

TRAINER = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))


class Stack:
    """What a test needs: the neighbours, the stubs, and stopping and starting the orchestrator."""

    def __init__(self, folder: Path, *, store: ArtifactStore | None = None) -> None:
        self.folder = folder
        self.store = store or DirectoryStore(folder / "artifacts")
        self.neighbours = Neighbours(self.store)
        self.options: dict[str, Any] = {}
        self.service: Any = None

    def settings(self) -> Settings:
        address = self.neighbours.address
        return Settings(
            data_dir=self.folder,
            renderer_address=address,
            wait_seconds=5.0,
            progress_seconds=0.0,
            grace_seconds=0.5,
            stop_seconds=2.0,
            **{
                "judge_address": address,
                "llm_agent_address": address,
                "max_reviews": 0,
                "trainer_command": TRAINER,
                "default_model": "test/model",
                **self.options,
            },
        )

    async def start(self) -> None:
        _drop_closed_handlers()
        self.service = await start(self.settings())
        self.channel = connect(self.service.address)
        self.sessions: Any = session_service_pb2_grpc.SessionServiceStub(self.channel)
        self.environments: Any = environment_service_pb2_grpc.EnvironmentServiceStub(self.channel)
        self.intents: Any = intent_service_pb2_grpc.IntentServiceStub(self.channel)
        self.artifacts: Any = artifact_service_pb2_grpc.ArtifactServiceStub(self.channel)
        self.benchmarks: Any = benchmark_service_pb2_grpc.BenchmarkServiceStub(self.channel)
        self.maintenance: Any = maintenance_service_pb2_grpc.MaintenanceServiceStub(self.channel)

    async def stop(self) -> None:
        if self.service is not None:
            await self.channel.close()
            await self.service.stop()
            self.service = None


def _drop_closed_handlers() -> None:
    """DBOS flushes its logger's handlers when it starts; an earlier test's wrote to a stream that is closed by now."""
    for name in ("dbos", ""):
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            if getattr(getattr(handler, "stream", None), "closed", False):
                logger.removeHandler(handler)
