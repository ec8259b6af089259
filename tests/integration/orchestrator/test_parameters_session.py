"""Sessions of the method `parameters` with real services: orchestrator, llm-agent, trainer; only the provider is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from dressage_orchestrator.lifecycle.outcome import BUDGETS
from dressage_orchestrator.methods.parameters.variants import VARIANTS, Variant
from openai_server import ScriptedServer
from pydantic import SecretStr
from search_authors import SearchAuthors

from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]

UNREACHABLE = 1e6


@dataclass
class Served:
    """The stack with a scripted provider."""

    stack: Stack
    authors: SearchAuthors
    provider: ScriptedServer

    async def run(self, ident: str, spec: v1.SessionSpec) -> tuple[v1.Session, list[v1.Iteration], list[ev.Event]]:
        """Create a session and wait for its end."""
        await self.stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id=ident))
        return await self.ended(ident)

    async def ended(self, ident: str) -> tuple[v1.Session, list[v1.Iteration], list[ev.Event]]:
        """Return a session once it has ended, its iterations and its events."""
        name = f"sessions/{ident}"
        events = await watch(self.stack.sessions, name, seconds=240)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        session = await self.stack.sessions.GetSession(pb.GetSessionRequest(name=name))
        listed = await self.stack.sessions.ListIterations(pb.ListIterationsRequest(parent=name, page_size=1000))
        return session, list(listed.iterations), events


@asynccontextmanager
async def served(stack: Stack, authors: SearchAuthors, **options: Any) -> AsyncIterator[Served]:
    with ScriptedServer(authors.answers()) as provider:
        store = str(stack.folder / "artifacts")
        agent = await start_agent(AgentSettings(store_url=store, api_base=provider.url, api_key=SecretStr("sk-test")))
        stack.options = {
            "llm_agent_address": agent.address,
            "trainer_command": (),
            "default_model": "openai/scripted",
            **options,
        }
        try:
            await stack.start()
            yield Served(stack, authors, provider)
        finally:
            await stack.stop()
            await agent.stop()


def spec_of(environment: str = "CartPole-v1", *, more: dict[str, Any] | None = None, **settings: Any) -> v1.SessionSpec:
    """A short session whose target cannot be reached, by default."""
    given = {"target": UNREACHABLE, "episodes": 4, "report_episodes": 5, "warmup": 3, "episode_budget": 24, **settings}
    spec = v1.SessionSpec(intent="balance the pole", environment=f"environments/{environment}", **(more or {}))
    spec.parameters.CopyFrom(v1.ParameterSpec(**given))
    return spec


def roles(variant: Variant, iterations: int) -> dict[str, int]:
    """Return the calls that a variant makes in so many iterations."""
    critics = iterations if variant.second == "critic" else 0
    calls = {"parameter_proposer": iterations * variant.calls - critics, "critic": critics}
    return {role: count for role, count in calls.items() if count}


async def test_every_variant_uses_its_whole_budget(stack: Stack) -> None:
    """Three iterations of two-call variants, six of one-call ones: 24 episodes, and 3 of the warm-up."""
    async with served(stack, SearchAuthors(seed=1)) as server:
        for variant in VARIANTS.values():
            server.authors.counts.clear()
            spec = spec_of(search=variant.name)
            session, iterations, events = await server.run(variant.name.replace("_", "-"), spec)
            assert session.state == v1.SESSION_STATE_EXHAUSTED, (variant.name, session.state_reason, session.failure)
            assert len(iterations) == 24 // (4 * variant.calls) == session.spec.max_iterations
            assert session.cache_hits == 0 and (session.candidates, session.episodes) == (9, 27), variant.name
            assert server.authors.counts == roles(variant, len(iterations)), variant.name
            assert session.cost.requests == sum(server.authors.counts.values())
            assert len(session.report.returns) == 5 and session.report.confirmations == 1
            kept = [entry.parameters.candidates[entry.parameters.chosen - 1] for entry in iterations]
            assert [entry.score for entry in iterations] == [candidate.mean_return for candidate in kept]
            best = max(iterations, key=lambda entry: entry.score)
            assert session.best_iteration == best.name and best.confirmed_score == session.report.mean
            if variant.commits_second:
                assert all(entry.parameters.chosen == len(entry.parameters.candidates) for entry in iterations)
            shown = [entry.parameters.evidence_tokens > 0 for entry in iterations]
            assert any(shown) == bool(variant.rollout_labels), variant.name
            scored = [event.scored.score for event in events if event.HasField("scored")]
            assert scored == [entry.score for entry in iterations]
            prefix = f"sessions/{session.name.partition('/')[2]}/iterations/1"
            files = json.loads(stack.store.get(f"{prefix}/parameters.json"))
            assert files["policy"]["kind"] == "linear" and files["values"] == list(iterations[0].parameters.values)
            assert json.loads(stack.store.get(f"{prefix}/proposal.json"))["parameters"]["chosen"] >= 4
            assert session.best_policy and stack.store.exists(f"{session.best_policy}/policy.safetensors")


async def test_a_candidate_on_equal_seeds_is_paired_and_repeats_are_cached(stack: Stack) -> None:
    """Every second proposal repeats the one before it; its returns are those of the first evaluation."""
    async with served(stack, SearchAuthors(seed=2, duplicate_every=2)) as server:
        session, iterations, _ = await server.run("cached", spec_of(search="props"))
    candidates = [entry.parameters.candidates[-1] for entry in iterations]
    assert [entry.duplicate_of for entry in candidates] == [0, 1, 0, 3, 0, 5]
    for first, again in zip(candidates[::2], candidates[1::2], strict=True):
        assert list(first.values) == list(again.values) and list(first.returns) == list(again.returns)
    assert (session.cache_hits, session.candidates, session.episodes) == (3, 6, 3 + 3 * 4)
    assert [len(entry.assignments) for entry in iterations][1::2] == [0, 0, 0] or session.report.confirmations == 1


async def test_the_session_succeeds_on_report_seeds_only(stack: Stack) -> None:
    """The target is reached on search seeds and confirmed; the report's returns are those of the report seeds."""
    async with served(stack, SearchAuthors(seed=1)) as server:
        spec = spec_of(search="r2po", target=9.0, revision_rule="none")
        session, iterations, events = await server.run("succeeds", spec)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and len(iterations) == 1
    assert session.report.mean >= 9.0 and session.report.first_seed == 2_000_000 and session.report.confirmations == 1
    assert [event.scored.confirmed for event in events if event.HasField("scored")] == [False, True]
    assert session.best_score == session.report.mean == iterations[0].confirmed_score


async def test_people_edit_steer_and_extend(stack: Stack) -> None:
    async with served(stack, SearchAuthors(seed=3)) as server:
        stub = stack.sessions
        spec = spec_of(search="r2po", more={"approve_before_evaluation": True, "max_iterations": 1})
        created = await stub.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="people"))

        async def waiting() -> v1.Session:
            while True:
                session = await stub.GetSession(pb.GetSessionRequest(name=created.name))
                if session.awaiting_approval:
                    return session
                await asyncio.sleep(0.05)

        await asyncio.wait_for(waiting(), 120)
        for bad in ("[1, 2]", "nine", "[9,0,0,0,0,0,0,0,0,0]"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.SteerSession(pb.SteerSessionRequest(name=created.name, proposal_source=bad))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        mine = [1.5, 0, 0, 0, 0, 0, 0, 0, 0, -1]
        await stub.SteerSession(pb.SteerSessionRequest(name=created.name, proposal_source=json.dumps(mine)))
        await asyncio.sleep(1)
        await asyncio.wait_for(waiting(), 120)
        await stub.ApproveSession(pb.ApproveSessionRequest(name=created.name))
        session, iterations, _ = await server.ended("people")
        first = iterations[0]
        assert list(first.parameters.candidates[3].values) == mine and first.author == "user"
        assert list(first.edited) == ["proposal"] and session.episodes == 3 + 8

        # Extended by one iteration, with a note that the prompts show, and a person's parameters.
        steer = pb.SteerSessionRequest(name=created.name, note="keep the pole slow", proposal_source=json.dumps(mine))
        await stub.SteerSession(steer)
        await stub.ResumeSession(pb.ResumeSessionRequest(name=created.name, additional_iterations=1))
        await asyncio.wait_for(waiting(), 120)
        await stub.ApproveSession(pb.ApproveSessionRequest(name=created.name))
        session, iterations, _ = await server.ended("people")
        assert len(iterations) == 2 and list(iterations[1].notes) == ["keep the pole slow"]
        assert iterations[1].parameters.candidates[0].duplicate_of == 1 and session.cache_hits == 1
        assert any("keep the pole slow" in request.text() for request in server.provider.requests)


@pytest.mark.parametrize("kind", ["tokens", "env_steps"])
async def test_an_exhausted_budget_still_gives_a_score(stack: Stack, kind: str) -> None:
    async with served(stack, SearchAuthors(seed=1)) as server:
        # Tokens for two calls; environment steps for the warm-up, one candidate and little more.
        budget = v1.Budget(tokens=300) if kind == "tokens" else v1.Budget(env_steps=3 * 500 + 4 * 500 + 10)
        session, iterations, _ = await server.run("short", spec_of(search="r2po", more={"budget": budget}))
        assert (session.state, BUDGETS[session.exhaustion_reason]) == (v1.SESSION_STATE_EXHAUSTED, kind), (
            session.state_reason
        )
        assert len(session.report.returns) == 5
        assert session.best_iteration in [iteration.name for iteration in iterations]
        more = v1.Budget(tokens=100_000, env_steps=1_000_000)
        await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=session.name, budget=more))
        again, iterations, _ = await server.ended("short")
    assert again.state == v1.SESSION_STATE_EXHAUSTED, again.state_reason
    assert again.exhaustion_reason == v1.EXHAUSTION_REASON_ITERATIONS and len(iterations) == 3
    assert (again.candidates, again.episodes) == (9, 27), "nothing is counted or played twice"


async def test_a_call_that_fails_for_good_delivers_the_incumbent(stack: Stack) -> None:
    authors = SearchAuthors(seed=1)
    async with served(stack, authors) as server:
        authors.bad_every, authors.bad_repairs = 3, True  # from the second iteration on
        session, iterations, _ = await server.run("fails", spec_of(search="r2po"))
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason
    assert len(session.report.returns) == 5 and session.best_iteration == iterations[0].name
    assert session.best_policy


async def test_searches_without_a_model(stack: Stack) -> None:
    async with served(stack, SearchAuthors(seed=1)) as server:
        # No key, no search: CMA-ES, and the session warns about it.
        spec = v1.SessionSpec(intent="balance the pole", environment="environments/CartPole-v1", model="template/v1")
        spec.parameters.SetInParent()
        session, iterations, events = await server.run("offline", spec)
        assert session.spec.parameters.search == "cma_es" and not server.provider.requests
        assert session.state == v1.SESSION_STATE_SUCCEEDED and session.report.mean >= 475
        assert len(session.report.returns) == 100 and session.goal == "a mean return of 475"
        warnings = [event.warning for event in events if event.HasField("warning")]
        assert [entry.reason for entry in warnings] == ["INTENT_IGNORED"] and "choose a model" in warnings[0].message
        assert session.episodes == iterations[0].parameters.search.episodes == 20 * session.candidates
        assert any(event.HasField("search_improved") for event in events)
        assert list(iterations[0].parameters.values) == list(iterations[0].parameters.search.best_parameters)

        # Whole budget, extended by another search.
        for search in ("random", "hill_climb"):
            ident = search.replace("_", "-")
            session, _, _ = await server.run(ident, spec_of(search=search, more={"model": "template/v1"}))
            assert session.state == v1.SESSION_STATE_EXHAUSTED and (session.candidates, session.episodes) == (6, 24)
        await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=session.name, additional_iterations=1))
        session, iterations, _ = await server.ended(ident)
        assert len(iterations) == 2 and session.episodes == 48
        assert list(iterations[0].parameters.values) != list(iterations[1].parameters.values)


async def test_a_candidate_that_is_not_confirmed_does_not_end_the_search(stack: Stack) -> None:
    """The best of few candidates on 2 search seeds does not reach its own score on report seeds."""
    async with served(stack, SearchAuthors(seed=1)) as server:
        spec = spec_of(search="random", episodes=2, report_episodes=40, episode_budget=40, target=60.0)
        spec.model = "template/v1"
        session, iterations, events = await server.run("unconfirmed", spec)
    proposal = iterations[0].parameters
    warned = [event.warning for event in events if event.warning.reason == "NOT_CONFIRMED"]
    if session.state == v1.SESSION_STATE_EXHAUSTED:
        assert session.candidates == 20 and session.episodes == 40
    assert (
        len(proposal.candidates) == len(warned) + (session.state == v1.SESSION_STATE_SUCCEEDED)
        or session.report.mean < 60
    )
    assert session.report.confirmations == sum("/report-" in name for name in iterations[0].assignments)
