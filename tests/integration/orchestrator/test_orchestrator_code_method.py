"""The code method with the real database, workflows and wire protocol; its neighbours and its trainer are scripted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio


class Author:
    """Scripted replies: the sources of each round in turn; rounds beyond the last one repeat it.

    :param feedback: source of the feedback class; empty: none.
    """

    def __init__(self, *rounds: list[str], feedback: str = "# feedback\n", fixed: str = "# fixed score=50\n") -> None:
        self.rounds, self.feedback, self.fixed = rounds, feedback, fixed

    def __call__(self, task: agent_pb.Task) -> agent_pb.TaskResult:
        result = agent_pb.TaskResult(model=task.model, cost=v1.Cost(requests=1, input_tokens=10, output_tokens=1))
        role = task.WhichOneof("role")
        if role == "policy_author":
            sources = self.rounds[min(task.policy_author.round, len(self.rounds)) - 1]
            result.policy.source = sources[(task.policy_author.candidate - 1) % len(sources)]
        elif role == "feedback_author":
            result.feedback.source = self.feedback
        elif role == "reflector":
            result.reflection.text = f"{len(task.reflector.history)} policies so far"
        elif role == "fixer":
            subject = task.fixer.subject
            result.fixed.source = self.fixed if subject == "policy" else f"# {subject} raises bad\n"
            result.fixed.explanation = "rewritten"
        return result


async def play(stack: Stack, author: Author, **fields: Any) -> tuple[v1.Session, list[v1.Iteration], list[Any]]:
    """Run a session; fields of `CodeSpec` are in ``code``."""
    stack.neighbours.agent.answer = author
    await stack.start()
    code = v1.CodeSpec(**{"candidates": 2, "episodes": 3, "report_episodes": 4, **fields.pop("code", {})})
    spec = v1.SessionSpec(
        **{"intent": "balance", "environment": "environments/CartPole-v1", "max_iterations": 3, **fields}, code=code
    )
    await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="codes"))
    events = await watch(stack.sessions, "sessions/codes")
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name="sessions/codes"))
    listed = await stack.sessions.ListIterations(pb.ListIterationsRequest(parent="sessions/codes"))
    return session, list(listed.iterations), events


def played(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each evaluation of a candidate by the trainer: first line of the source, first seed."""
    monkeypatch.setenv("DRESSAGE_TRAINER_PLAYED", str(tmp_path / "played"))
    return tmp_path / "played"


def warnings(events: list[Any]) -> list[str]:
    return [event.warning.reason for event in events if event.WhichOneof("payload") == "warning"]


async def test_rounds_until_the_target_on_report_seeds(stack: Stack, plays: Path) -> None:
    author = Author(["# a score=100\n", "# b score=200\n"], ["# c score=480\n", "# a score=100\n"])
    session, rounds, _ = await play(stack, author)
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.goal == "475" and session.method == "code"
    assert [entry.code.chosen for entry in rounds] == [2, 1] and [entry.score for entry in rounds] == [200, 480]
    assert session.report.mean == 480 and len(session.report.returns) == 4 and session.report.confirmations == 1
    assert session.report.first_seed == 2_000_000 and session.best_iteration == rounds[1].name
    assert rounds[1].code.reflection == "2 policies so far" and rounds[1].parent == rounds[0].name
    assert "+# c score=480" in rounds[1].diff and rounds[1].code.candidates[0].feedback[0] == "480 points"
    assert stack.store.get(f"{session.best_policy}/policy.py") == b"# c score=480\n"
    # Rounds have other seeds, and the candidates of a round the same ones.
    assert [line.split()[-1] for line in played(plays)[:4]] == ["1000000", "1000000", "1000003", "1000003"]
    # 2 + 2 candidates of 3 episodes, and one of 20 on selection seeds; the report is not counted.
    assert (session.candidates, session.episodes, session.cache_hits) == (5, 32, 0)


async def test_prompts_show_the_results_of_all_candidates(stack: Stack) -> None:
    await play(stack, Author(["# a score=1\n", "# b score=2\n"], ["# c score=3\n", "# d score=4\n"]), max_iterations=2)
    tasks = [task.policy_author for task in stack.neighbours.agent.tasks if task.HasField("policy_author")]
    assert sorted((task.round, task.candidate) for task in tasks) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    (history,) = {tuple((t.source, tuple(t.returns), t.best_of_round) for t in task.history) for task in tasks[2:]}
    assert history == (("", (1, 1, 1), False), ("# b score=2\n", (2, 2, 2), True))
    assert tasks[2].target == 475 and tasks[2].horizon == 500 and tasks[2].reflection == "2 policies so far"


async def test_the_paper_profile_delivers_the_last_winner(stack: Stack, plays: Path) -> None:
    author = Author(["# a score=490\n", "# b score=1\n"], ["# c score=300\n", "# d score=4\n"])
    code = {"profile": "promptpo-paper"}
    session, rounds, _ = await play(stack, author, max_iterations=2, code=code)
    assert session.state == v1.SESSION_STATE_EXHAUSTED and session.report.mean == 300
    assert session.best_iteration == rounds[1].name and session.spec.code.repairs == 10
    assert {line.split()[-1] for line in played(plays)} == {"1000000", "2000000"}
    tasks = [task.policy_author for task in stack.neighbours.agent.tasks if task.HasField("policy_author")]
    assert [trial.source for trial in tasks[-1].history] == ["# a score=490\n"]  # losers are hidden


async def test_failed_candidates_are_repaired_and_never_end_it(stack: Stack, plays: Path) -> None:
    author = Author(["# bad one\n", "# raises\n", "# good score=20\n"])
    session, (first, *_), _ = await play(stack, author, max_iterations=1, code={"candidates": 3})
    assert session.state == v1.SESSION_STATE_EXHAUSTED
    assert [entry.mean_return for entry in first.code.candidates] == [50, 50, 20]
    assert [entry.repairs for entry in first.code.candidates] == [1, 1, 0] and first.repairs == 2
    keys = [key for key in stack.neighbours.agent.keys if "fixer" in key]
    assert keys == ["iterations/1/policy_fixer/1/1", "iterations/1/policy_fixer/2/1"]
    # The repaired policy of the second candidate is the first one's: it is not played again.
    assert first.code.candidates[1].duplicate and session.cache_hits == 1
    assert sum("# fixed" in line and line.endswith(" 1000000") for line in played(plays)) == 1


async def test_all_failing_ends_with_the_reason(stack: Stack) -> None:
    author = Author(["# raises\n", "# bad\n"], fixed="# raises again\n")
    session, rounds, events = await play(stack, author, max_iterations=2, code={"repairs": 1})
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == "NO_POLICY"
    assert "2 rounds" in session.failure.message and "ZeroDivisionError" in session.failure.message
    assert [entry.HasField("score") for entry in rounds] == [False, False] and len(rounds) == 2
    assert warnings(events) == ["ALL_CANDIDATES_FAILED"] * 2
    second = next(t.policy_author for t in stack.neighbours.agent.tasks if t.policy_author.round == 2)
    assert "POLICY_RAISED" in second.history[0].failure and second.history[0].source


async def test_broken_feedback_is_a_warning(stack: Stack) -> None:
    author = Author(["# a score=1\n", "# b score=2\n"], feedback="# raises\n")
    session, rounds, events = await play(stack, author, max_iterations=2)
    assert session.report.mean == 2 and warnings(events) == ["NO_FEEDBACK"]
    assert not any(entry.feedback for row in rounds for entry in row.code.candidates)
    assert [key for key in stack.neighbours.agent.keys if "feedback" in key] == [
        "feedback_author",
        *(f"feedback_fixer/{turn}" for turn in (1, 2, 3)),
    ]


async def test_winners_are_compared_on_selection_seeds(stack: Stack) -> None:
    author = Author(["# a score=300 lucky\n", "# b score=2\n"], ["# c score=200\n", "# d score=4\n"])
    session, rounds, _ = await play(stack, author, max_iterations=2)
    assert [entry.score for entry in rounds] == [300, 200]
    assert session.best_iteration == rounds[1].name and session.report.mean == 200


async def test_a_lucky_round_is_not_a_success(stack: Stack) -> None:
    author = Author(["# a score=480 lucky\n", "# b score=2\n"], ["# c score=479\n", "# d score=4\n"])
    session, rounds, events = await play(stack, author)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and "NOT_CONFIRMED" in warnings(events)
    assert [entry.passed for entry in rounds] == [False, True] and rounds[0].confirmed_score == 240
    assert session.report.confirmations == 1


async def test_a_persons_policy_needs_no_model(stack: Stack) -> None:
    code = {"policy_source": "# mine score=490\n"}
    session, rounds, _ = await play(stack, Author([]), model="template/v1", max_iterations=0, code=code)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.report.mean == 490
    assert [entry.author for entry in rounds] == ["user"] and stack.neighbours.agent.tasks == []


async def test_a_persons_broken_policy_is_theirs_to_correct(stack: Stack) -> None:
    session, *_ = await play(
        stack, Author([]), model="template/v1", max_iterations=0, code={"policy_source": "# bad\n"}
    )
    assert session.failure.reason == "NO_POLICY" and "no policy of the only round" in session.failure.message
    assert session.failure.remedy == "correct the policy of policy_source"


async def test_no_model_is_an_error_with_a_remedy(stack: Stack) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        await play(stack, Author([]), model="template/v1")
    assert "replay a recorded session" in refused.value.details() and "policy_source" in refused.value.details()


async def test_an_edit_replaces_the_first_candidate(stack: Stack) -> None:
    author = Author(["# a score=1\n", "# b score=2\n"])
    running = asyncio.create_task(play(stack, author, max_iterations=1, approve_before_evaluation=True))
    name = "sessions/codes"
    while not stack.service or not await waiting(stack, name):
        await asyncio.sleep(0.05)
    with pytest.raises(grpc.RpcError) as refused:
        await stack.sessions.SteerSession(pb.SteerSessionRequest(name=name, proposal_source="# bad\n"))
    assert "candidate 1" in refused.value.details()
    await stack.sessions.SteerSession(pb.SteerSessionRequest(name=name, proposal_source="# mine score=7\n"))
    while (await sources(stack, name))[:1] != ["# mine score=7\n"]:
        await asyncio.sleep(0.05)
    await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=name, iteration=1, note="fine"))
    session, (first,), _ = await asyncio.wait_for(running, 60)
    assert session.report.mean == 7 and [entry.source for entry in first.code.candidates][1] == "# b score=2\n"


async def waiting(stack: Stack, name: str) -> bool:
    try:
        session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    except (grpc.RpcError, AttributeError):
        return False
    return bool(session.awaiting_approval)


async def sources(stack: Stack, name: str) -> list[str]:
    entry = await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{name}/iterations/1"))
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    return [candidate.source for candidate in entry.code.candidates] if session.awaiting_approval else []


async def test_fixed_seeds_answer_a_repeated_source_from_the_cache(stack: Stack, plays: Path) -> None:
    author = Author(["# a score=30\n", "# b score=2\n"], ["# b score=2\n", "# a score=30\n"])
    session, (_, second), _ = await play(stack, author, max_iterations=2, code={"rotate_seeds": False})
    assert session.cache_hits == 2 and [entry.duplicate for entry in second.code.candidates] == [True, True]
    assert second.score == 30 and second.code.chosen == 2 and second.code.episodes == 0
    # Both winners are the same source, so that there is nothing to select.
    assert [line for line in played(plays) if "# a" in line] == ["# a score=30 1000000", "# a score=30 2000000"]


async def test_a_resumed_session_keeps_its_results(stack: Stack, plays: Path) -> None:
    author = Author(["# a score=30\n", "# b score=2\n"], ["# c score=480\n", "# d score=1\n"])
    session, _, _ = await play(stack, author, max_iterations=1)
    assert session.state == v1.SESSION_STATE_EXHAUSTED and session.report.mean == 30
    before = len(played(plays))
    await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name="sessions/codes"))
    await watch(stack.sessions, "sessions/codes")
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name="sessions/codes"))
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.report.mean == 480
    assert len(played(plays)) == before + 4  # two candidates, the selection and the report of the winner
    assert sum(key.startswith("feedback_author") for key in stack.neighbours.agent.keys) == 1
    assert session.candidates == 5 and session.report.confirmations == 2
