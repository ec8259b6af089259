"""Search methods on the command line: target, score on report seeds, candidates, many short iterations, learning curve."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dressage
import pytest
from dressage import errors
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as pb
from dressage.cli import guidance, listings, output
from dressage.cli.main import invoke
from dressage.local.connection import Connection
from dressage.sdk import curves, progress, screen
from dressage.sdk.curve_pictures import draw_search
from dressage.sdk.results import Result, rows

from tests.fakes.options import spec_of
from tests.fakes.orchestrator import Background, FakeOrchestrator

RUN = ["run", "balance the pole", "--env", "CartPole-v1", "--method", "parameters"]


def ended() -> pb.Session:
    """A finished search that reached its target."""
    report = pb.Report(mean=498.25, interval_low=496.0, interval_high=500.0, returns=[500.0, 496.5], lengths=[500, 497])
    report.first_seed, report.confirmations = 2_000_000, 1
    session = pb.Session(state=pb.SESSION_STATE_SUCCEEDED, method="parameters", goal="475", report=report)
    session.episodes, session.candidates, session.cache_hits = 4000, 200, 3
    session.best_score, session.best_policy = 498.25, "sessions/s1/iterations/2/assignments/report/policy"
    session.best_iteration = "sessions/s1/iterations/2"
    session.start_time.FromSeconds(100)
    session.end_time.FromSeconds(112)
    return session


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Background]:
    fake = FakeOrchestrator(ended=ended())
    fake.estimate.method, fake.estimate.goal = "parameters", "475"
    fake.estimate.spec.CopyFrom(spec_of(**options(settings=["search=cma_es"])))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "180")
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


def options(**more: Any) -> dict[str, Any]:
    return {"intent": "balance", "env": "CartPole-v1", "method": "parameters", **more}


def iteration(number: int, *returns: list[float], chosen: int = 1, tokens: int = 0) -> pb.Iteration:
    """An iteration of two candidates."""
    entry = pb.Iteration(name=f"sessions/s1/iterations/{number}", number=number, phase=pb.PHASE_DONE)
    for origin, played in zip(("search", "critic"), returns, strict=False):
        mean = sum(played) / len(played)
        entry.parameters.candidates.add(values=[1.5, number], origin=origin, mean_return=mean, returns=played)
    entry.parameters.chosen, entry.parameters.episodes = chosen, sum(map(len, returns))
    entry.parameters.values.extend([1.5, number])
    entry.score = entry.parameters.candidates[chosen - 1].mean_return
    entry.cost.input_tokens = tokens
    return entry


def test_target_is_a_setting_of_search_methods() -> None:
    assert spec_of(**options(target=475.5)).parameters.target == 475.5
    assert spec_of(**options(target=-120.0, method="code")).code.target == -120.0
    assert spec_of(**options(target=0.0)).parameters.HasField("target")


def test_a_target_is_refused_where_there_is_none_or_two() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"--target: the method 'reward' has no target .*threshold"):
        spec_of(**options(target=1.0, method="reward"))
    with pytest.raises(errors.InvalidArgument, match=r"--target: given more than once"):
        spec_of(**options(target=1.0, settings=["target=2"]))
    with pytest.raises(errors.InvalidArgument, match=r"--method: unknown method \(got 'magic'\)"):
        spec_of(**options(target=1.0, method="magic"))


def test_run_prints_the_score_on_report_seeds(server: Background, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*RUN, "--target", "475"]) == 0
    text = capsys.readouterr().out
    assert "none: cma_es uses no language model, no cost; it ignores the words of the intent" in text
    assert "498.2 over 2 episodes on report seeds, 95 % interval 496.0 to 500.0 (target 475: reached)" in text
    assert "4,000 episodes, 200 candidates, 3 more from the cache" in text
    assert "confirmed" not in text and "--format sb3" not in text
    assert server.fake.requests["CreateSession"][0].spec.parameters.target == 475


@pytest.mark.parametrize(("method", "basis"), [("program", "report states"), ("code", "report seeds")])
def test_a_score_states_what_it_is_measured_on(method: str, basis: str) -> None:
    session = pb.Session(method=method, goal="1", state=pb.SESSION_STATE_EXHAUSTED)
    session.report.CopyFrom(pb.Report(mean=0.98, interval_low=0.96, interval_high=1.0, returns=[1.0, 0.96]))
    text = dict(rows(Result(session, Connection(None, "remote", None))))["score"]  # type: ignore[arg-type]
    assert text == f"0.98 over 2 episodes on {basis}, 95 % interval 0.96 to 1.00 (target 1: not reached)"


def test_run_as_json_has_score_returns_and_episodes(server: Background, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*RUN, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["score"], facts["report_returns"], facts["episodes"]) == (498.25, [500.0, 496.5], 4000)
    assert (facts["candidates"], facts["cache_hits"], facts["target"]) == (200, 3, 475.0)
    assert facts["interval"] == [496.0, 500.0] and facts["plan"]["settings"]["search"] == "cma_es"


def test_a_result_in_python_has_the_report(server: Background) -> None:
    result = dressage.run("balance", env="CartPole-v1", method="parameters", target=475, quiet=True)
    assert result.report is not None and result.report.returns == (500.0, 496.5) and result.report.target == 475
    assert (result.score, result.episodes, result.candidates, result.cache_hits) == (498.25, 4000, 200, 3)
    assert "score 498.2" in str(result) and "2 episodes on report seeds" in result._repr_html_()
    with pytest.raises(errors.InvalidArgument, match="target: the method 'reward' has no target"):
        dressage.run("balance", env="CartPole-v1", target=475)


def test_the_curve_has_score_and_best_by_episodes_and_tokens(tmp_path: Path) -> None:
    failed = pb.Iteration(number=2, code=pb.CodeProposal(episodes=4))
    curve = curves.points(
        [iteration(1, [3.0, 5.0], [9.0, 1.0], chosen=2, tokens=100), failed, iteration(3, [2.0], tokens=50)]
    )
    assert [(point.episodes, point.tokens, point.score, point.best) for point in curve] == [
        (4, 100, 5.0, 5.0),
        (9, 150, 2.0, 5.0),
    ]
    session = ended()
    session.spec.intent = "balance $ the pole"
    path = tmp_path / "deep" / "curve.png"
    assert draw_search(curve, path, session) == "" and path.read_bytes().startswith(b"\x89PNG")
    assert draw_search([], tmp_path / "none.png", session) == "no candidate was evaluated"


def test_the_curve_of_a_search_by_the_trainer_has_its_improvements() -> None:
    search = pb.SearchResult(evaluated=50, episodes=1000, best_score=9.0)
    search.improvements.add(evaluated=1, score=3.0)
    search.improvements.add(evaluated=10, score=9.0)
    entry = pb.Iteration(number=1, parameters=pb.ParameterProposal(episodes=1000, search=search))
    curve = curves.points([entry, iteration(2, [4.0])])
    assert [(point.episodes, point.best) for point in curve] == [(20, 3.0), (200, 9.0), (1000, 9.0), (1001, 9.0)]


def test_the_iterations_of_a_search_are_listed_with_candidates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "180")
    first = iteration(1, [3.0, 5.0], [90.0, 110.0], chosen=2)
    first.parameters.candidates[0].duplicate_of = 1
    second = iteration(2, [1.0])
    second.parameters.candidates[0].rule = "skipped"
    third = pb.Iteration(number=3, code=pb.CodeProposal(source="class Policy: …", chosen=1, episodes=5))
    third.code.candidates.add(mean_return=7.0, returns=[7.0, 7.0])
    third.code.candidates.add(failure=pb.Failure(message="raised"))
    entries = [output.message_dict(entry) for entry in (first, second, third, pb.Iteration(number=4))]
    listings.print_search_iterations(entries)
    rows = capsys.readouterr().out.splitlines()
    assert "100.0" in rows[1] and "2 (1 cached)" in rows[1] and "2 critic" in rows[1] and "90.00 to 110.0" in rows[1]
    assert "revision skipped" in rows[2]
    assert "2 (1 failed)" in rows[3] and "7.00" in rows[3]
    assert rows[4].strip() == "4"


def test_show_and_list_print_a_search(server: Background, capsys: pytest.CaptureFixture[str]) -> None:
    session = ended()
    session.name = "sessions/s1"
    result = Result(session, Connection(None, "remote", None))  # type: ignore[arg-type]
    listings.print_session(result, [output.message_dict(iteration(1, [4.0]))], as_json=False)
    assert "4.00" in capsys.readouterr().out
    for arguments in (["list"], ["show", "s1"], ["lineage", "s1"], ["diff", "s1", "1", "2"], ["rollouts", "s1"]):
        invoke(RUN)
        capsys.readouterr()
        assert invoke(["sessions", *arguments]) == 0, arguments


def test_two_iterations_of_parameters_are_compared_by_value(capsys: pytest.CaptureFixture[str]) -> None:
    guidance.print_diff(iteration(1, [4.0]), iteration(2, [6.0]), as_json=False)
    out = capsys.readouterr().out
    assert "-parameter 1: 1" in out and "+parameter 1: 2" in out and "candidates" not in out


def events(count: int) -> list[ev.Event]:
    """The events of a search with many iterations."""
    entry = []
    for number in range(1, count + 1):
        entry.append(ev.Event(iteration=number, phase_changed=ev.PhaseChanged(phase=pb.PHASE_PROPOSE)))
        entry.append(ev.Event(iteration=number, agent_replied=ev.AgentReplied(role="parameter_proposer", model="m")))
        result = pb.CandidateResult(id="c", returns=[1.0] * 20)
        entry.append(ev.Event(iteration=number, candidate_evaluated=ev.CandidateEvaluated(result=result)))
        entry.append(ev.Event(iteration=number, scored=ev.Scored(score=float(number))))
    for sequence, event in enumerate(entry, start=1):
        event.sequence = sequence
    return entry


def test_a_hundred_iterations_are_a_bounded_number_of_lines() -> None:
    view = progress.View(session="sessions/s1", started=0.0, method="parameters", max_iterations=100, goal="475")
    stream = io.StringIO()
    with screen.display(view, stream=stream) as update:
        for event in events(100):
            view = progress.advance(view, event)
            update(view, event)
    printed = stream.getvalue().splitlines()
    assert len(printed) <= 30
    assert printed[0] == "[1] proposing"
    assert printed[-1] == "[99/100] best score 99.00 of 475, 99 candidates, 1,980 episodes"
    assert len(view.lines) <= 8 and "best score 100 of 475" in progress.search_line(view)


def test_failures_and_confirmations_of_a_search_are_always_shown() -> None:
    failed = pb.CandidateResult(id="c", failure=pb.Failure(message="raised"))
    shown = [
        ev.Event(iteration=50, candidate_evaluated=ev.CandidateEvaluated(result=failed)),
        ev.Event(iteration=50, check_finished=ev.CheckFinished(subject="policy")),
        ev.Event(iteration=50, scored=ev.Scored(score=1.0, confirmed=True)),
        ev.Event(iteration=50, warning=ev.Warning(reason="R", message="careful")),
    ]
    assert not any(progress.is_routine(event, method="parameters") for event in shown)
    routine = ev.Event(iteration=50, scored=ev.Scored(score=1.0))
    assert progress.is_routine(routine, method="parameters") and not progress.is_routine(routine, method="reward")
