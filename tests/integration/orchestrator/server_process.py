"""An orchestrator in a process of its own, to be killed: `server_process.py FOLDER NEIGHBOURS`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dressage.serving import logs
from dressage.serving.server import run_until_signal
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.wiring import start

TRAINER = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))


async def main(folder: Path, neighbours: str) -> None:
    logs.configure(format="text")
    settings = Settings(
        data_dir=folder,
        llm_agent_address=neighbours,
        judge_address=neighbours,
        renderer_address=neighbours,
        trainer_command=TRAINER,
        wait_seconds=5.0,
        progress_seconds=0.0,
        default_model="test/model",
        max_reviews=0,
    )
    await run_until_signal(await start(settings))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
