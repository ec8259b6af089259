"""Sessions of the method `program` with real services: orchestrator, llm-agent, trainer; only the provider is scripted."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import grpc
import pytest
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.policies import load_program
from dressage.programs.families import program_task
from dressage_orchestrator.methods.program.spec import REVISIONS
from openai_server import Answer, Request
from search_authors import SearchAuthors

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_parameters_session import Served, served

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(400)]

SOLVER = "DEF run m( WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w) m)"


class ProgramAuthors(SearchAuthors):
    """Answers of the program author and the program reviser."""

    def answers(self) -> list[Answer]:
        """Return the script: a round of weak programs, every tenth reply without one; the solver as a revision."""
        self.requests: Counter[str] = Counter()

        def author(_: Request) -> str:
            self.requests["author"] += 1
            number = self.requests["author"]
            body = "turnLeft move turnRight " * (number % 7) + "move"
            return "I cannot." if number % 10 == 0 else f"DEF run m( {body} m)"

        def reviser(request: Request) -> str:
            self.requests["reviser"] += 1
            self.prompt = request.text()
            return f"DSL:\n{SOLVER}"

        return [
            Answer(when="You are the program author", reply=author, repeat=True),
            Answer(when="You are the program reviser", reply=reviser, repeat=True),
        ]


def spec_of(environment: str = "karel/StairClimber", *, more: dict[str, Any] | None = None, **settings: Any) -> Any:
    spec = v1.SessionSpec(intent="climb the stairs", environment=f"environments/{environment}", **(more or {}))
    spec.program.CopyFrom(v1.ProgramSpec(**{"budget": 200_000, **settings}))
    return spec


def payloads(events: list[ev.Event], kind: str) -> list[Any]:
    return [getattr(event, kind) for event in events if event.WhichOneof("payload") == kind]


async def _recorded(server: Served) -> None:
    """Without a model: the recorded replies seed the search, and the session succeeds on report states."""
    session, (iteration,), events = await server.run("recorded", spec_of(more={"model": "template/v1"}))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    (collected,) = payloads(events, "programs_collected")
    assert collected.requested == 48 and collected.kept == 32 and "by hand" in collected.provenance
    improved = [one.improvement for one in payloads(events, "search_improved")]
    assert improved[-1].program == iteration.program.program and improved[-1].score == 1
    assert [one.score for one in improved] == sorted({one.score for one in improved})
    report, task = session.report, program_task("karel/StairClimber")
    assert report.mean == 1 and report.first_seed == 1_000 and len(report.returns) == 32
    assert session.candidates == iteration.program.search.evaluated >= 32
    policy = load_program(server.stack.folder / "artifacts" / session.best_policy)
    assert policy.program == iteration.program.program and policy.report_states == task.report_states(32)
    assert json.loads(json.dumps(policy.card))["profile"] == "corrected"


async def _requested(server: Served, authors: ProgramAuthors) -> None:
    """With a model: 48 replies of which 32 are kept; those without a program do not matter."""
    session, (iteration,), events = await server.run("requested", spec_of(budget=32, target=2))
    assert session.state == v1.SESSION_STATE_EXHAUSTED and session.candidates == 32
    (collected,) = payloads(events, "programs_collected")
    assert authors.requests["author"] >= 48 and collected.requested == 48
    assert collected.kept == 32 <= collected.usable and 6 <= collected.distinct <= 8
    assert len(iteration.program.programs) == collected.distinct and iteration.author == "openai/scripted"


async def _revised(server: Served, authors: ProgramAuthors) -> None:
    """Each revision shows the last round: all programs, their returns, or an episode of the best one."""
    for number, search in enumerate(REVISIONS):
        session, iterations, _ = await server.run(f"revised-{number}", spec_of(search=search, seed_programs=4))
        assert session.state == v1.SESSION_STATE_SUCCEEDED and len(iterations) == 2
        assert ("Initial grid" in authors.prompt) == search.endswith("trace") and "turnLeft()" in authors.prompt
        assert ("none of them solves" in authors.prompt) == (search == "regeneration")
        assert ("Mean return " in authors.prompt) == (search == "regeneration_with_reward")
        assert iterations[1].program.programs == [SOLVER] and session.report.mean == 1


async def _random(server: Served) -> None:
    """From random programs: stated in the iteration, and equal sessions end the same."""
    results = []
    for ident in ("random-1", "random-2"):
        spec = spec_of("karel/FourCorners", seed_programs=0, search="hill_climb", budget=5_000, target=2)
        session, (iteration,), _ = await server.run(ident, spec)
        assert iteration.author == iteration.program.origin == "random" and session.candidates == 5_000
        results.append((iteration.program.program, iteration.score, list(session.report.returns)))
    assert results[0] == results[1]


async def _refused(server: Served) -> None:
    for change, message in (
        ({"environment": "karel/Nothing"}, "unknown environment"),
        ({"budget": 0}, "budget"),
        ({"search": "annealing"}, "scheduled_hill_climb"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=message) as error:
            await server.stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec_of(**change)))
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_programs_of_all_origins_are_searched_and_scored(stack: Stack) -> None:
    """One test: its sessions share the compiled engine."""
    authors = ProgramAuthors()
    async with served(stack, authors) as server:
        await _refused(server)
        await _recorded(server)
        await _requested(server, authors)
        await _revised(server, authors)
        await _random(server)
