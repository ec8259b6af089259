"""A session in a registered language with a prompt and a parser of replies of its own; only the provider is scripted."""

from __future__ import annotations

from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs import custom
from dressage.programs.languages import registering
from dressage.sandbox.capabilities import capabilities
from dressage_judge.settings import Settings as JudgeSettings
from dressage_judge.wiring import start as start_judge
from openai_server import Answer, Request
from search_authors import SearchAuthors

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_parameters_session import served
from tests.integration.orchestrator.test_program_session import payloads, spec_of

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
]

STUMBLING = Path(__file__).parents[1] / "languages" / "stumbling"


class LineAuthors(SearchAuthors):
    """Answers to the plug-in's prompt: lines that only its parser reads, every fifth reply without one."""

    def answers(self) -> list[Answer]:
        self.prompts: list[str] = []

        def author(request: Request) -> str:
            self.prompts.append(request.text())
            return "right right" if len(self.prompts) % 5 == 0 else f"!{'right ' * (len(self.prompts) % 3 + 1)}"

        return [Answer(when="Write words for a line.", reply=author, repeat=True)]


async def test_prompt_and_parser_of_a_plugin_seed_its_search(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(custom.VARIABLE, str(tmp_path / "environments"))
    registering.register(str(STUMBLING), print)
    store, scratch = str(tmp_path / "artifacts"), str(tmp_path / "judge")
    judge = await start_judge(JudgeSettings(store_url=store, scratch=scratch, grace_seconds=1))
    authors = LineAuthors()
    try:
        async with served(stack, authors, judge_address=judge.address) as server:
            spec = spec_of("stumbling/Good", seed_programs=6, budget=400)
            session, (iteration,), events = await server.run("own-language", spec)
    finally:
        await judge.stop()
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert all("Reach the goal." in prompt and "$" not in prompt for prompt in authors.prompts)
    (collected,) = payloads(events, "programs_collected")
    assert collected.kept == 6 and collected.distinct == 3
    assert sorted(iteration.program.programs) == [f"DEF run m( {'right ' * n}m)" for n in (1, 2, 3)]
    assert session.report.mean == 1 and session.candidates <= 400
    (warning,) = [event for event in payloads(events, "warning") if event.reason == "SLOW_LANGUAGE"]
    assert "stumbling/Good" in warning.message and "stepped in Python" in warning.message
