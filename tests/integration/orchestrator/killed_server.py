"""The server of `server_process.py`, to be killed at a step: `killed_server.py FOLDER NEIGHBOURS AGENT`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

import killing
from dressage.serving import logs
from dressage.serving.server import run_until_signal
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.wiring import start

TRAINER = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))


async def main(folder: Path, neighbours: str, agent: str) -> None:
    logs.configure(format="text")
    settings = Settings(
        data_dir=folder,
        llm_agent_address=agent,
        judge_address=neighbours,
        renderer_address=neighbours,
        trainer_command=TRAINER,
        wait_seconds=2.0,
        progress_seconds=0.0,
        max_reviews=0,
    )
    await run_until_signal(await start(settings))


killing.install()
asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
