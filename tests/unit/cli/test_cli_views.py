"""What commands show while a session runs, and their options: checkpoints, detail, exit statuses, files, names."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dressage import errors
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2
from dressage.cli import output, run
from dressage.cli.main import invoke
from dressage.cli.runs import new_text
from dressage.envs.cards import load_card
from dressage.errors import NotFound
from dressage.sdk import event_lines, progress, screen, session_file, texts
from google.protobuf.json_format import MessageToDict
from jsonschema import Draft202012Validator

from tests.fakes.orchestrator import Background, FakeOrchestrator

TRAIN = "sessions/s1/iterations/1/assignments/train"


def evaluated(seed: int, step: int) -> ev.Event:
    evaluation = pb.Evaluation(env_step=step, returns=[100.0 * seed, 100.0 * seed + 2], speeds=[1.0])
    name = f"{TRAIN}/members/default-s{seed}"
    return ev.Event(evaluation_finished=ev.EvaluationFinished(member=name, evaluation=evaluation))


def judged(seed: int, step: int, score: float) -> ev.Event:
    judgment = pb.Judgment(score=score, passed=score >= 0.7, diagnosis="too slow")
    return ev.Event(judged=ev.Judged(subject=f"{TRAIN}/members/default-s{seed}", judgment=judgment, env_step=step))


def trained(step: int) -> ev.Event:
    members = [
        pb.Member(name=f"{TRAIN}/members/default-s{seed}", env_steps=step, target_env_steps=100) for seed in (0, 1)
    ]
    return ev.Event(progress=ev.Progress(assignment=TRAIN, members=members, activity="training"))


def story() -> list[ev.Event]:
    """Two members, two checkpoints; judgments come late and out of order."""
    evaluating = ev.Event(phase_changed=ev.PhaseChanged(phase=pb.PHASE_EVALUATE))
    judging = ev.Event(phase_changed=ev.PhaseChanged(phase=pb.PHASE_JUDGE))
    whole = ev.Event(judged=ev.Judged(subject="sessions/s1/iterations/1", judgment=pb.Judgment(score=0.6)))
    events = [
        evaluating, trained(50), evaluated(0, 50), evaluated(1, 50), trained(100), judged(1, 50, 0.2), evaluated(0, 100),
        judged(0, 50, 0.1), evaluated(1, 100), judging, judged(0, 0, 0.8), judged(1, 0, 0.4), whole,
        ev.Event(scored=ev.Scored(score=0.6)),
    ]  # fmt: skip
    for number, event in enumerate(events, 1):
        event.sequence, event.iteration = number, 1
    return events


def shown(events: list[ev.Event], detail: screen.Detail, **spec: Any) -> tuple[list[str], list[progress.View]]:
    reward = pb.RewardSpec(evaluations=2, **spec)
    view = screen.first_view(pb.Session(name="sessions/s1", spec=pb.SessionSpec(reward=reward)))
    stream, views = io.StringIO(), []
    with screen.display(view, stream=stream, detail=detail) as update:
        for event in events:
            view = progress.advance(view, event)
            update(view, event)
            views.append(view)
    return stream.getvalue().splitlines(), views


def test_a_checkpoint_is_one_line_whatever_the_order_of_its_events() -> None:
    lines, views = shown(story(), "normal")
    checkpoints = [line for line in lines if " steps: " in line]
    assert checkpoints == [
        "[1] checkpoint at 50 steps: score 0.10 0.20, 0 of 2 passed; stock return 1 101; 1.00 1.00 m/s",
        "[1] policies at 100 steps: score 0.80 0.40, 1 of 2 passed; stock return 1 101; 1.00 1.00 m/s",
    ]
    assert not any("default-s" in line and "judged" in line for line in lines)
    assert [line for line in lines if "judged 0.60" in line] == ["[1] judged 0.60, not passed"]
    assert sum("0.60" in line for line in lines) == 1, "the score of the iteration is shown once"
    assert [line for line in views[-1].lines if " steps: " in line] == checkpoints


def test_the_scores_of_a_confirmation_are_said_to_be_on_fresh_seeds() -> None:
    confirming = ev.Event(phase_changed=ev.PhaseChanged(phase=pb.PHASE_CONFIRM))
    again = [confirming, evaluated(0, 100), evaluated(1, 100), judged(0, 0, 0.7), judged(1, 0, 0.3)]
    for number, event in enumerate(again, 100):
        event.sequence, event.iteration = number, 1
    lines, _ = shown([*story(), *again], "normal")
    expected = (
        "on fresh seeds, policies at 100 steps: score 0.70 0.30, 1 of 2 passed; stock return 1 101; 1.00 1.00 m/s"
    )
    assert [line for line in lines if " steps: " in line][2:] == [f"[1] {expected}"]


def test_a_training_without_a_judge_has_its_checkpoints_too() -> None:
    events = [event for event in story() if event.WhichOneof("payload") not in ("judged", "scored")]
    lines, _ = shown(events, "normal", train_only=True)
    assert sum("checkpoint at" in line for line in lines) == 2 and not any("score" in line for line in lines)


def test_evaluating_is_a_state_with_progress() -> None:
    _, views = shown(story(), "normal")
    seen = [state for view in views if (state := progress.evaluating(view)) is not None]
    assert seen[0] == (2, 4) and seen[-1] == (3, 4) and progress.evaluating(views[-1]) is None


def test_quiet_shows_nothing_and_verbose_every_event() -> None:
    assert shown(story(), "quiet")[0] == []
    verbose = shown(story(), "verbose")[0]
    assert sum("judged" in line for line in verbose) >= 3 and sum("evaluated at" in line for line in verbose) >= 2


def test_a_judge_that_passes_again_has_no_second_line() -> None:
    first = ev.Event(sequence=1, iteration=1, check_finished=ev.CheckFinished(subject="judge", ok=True))
    again = ev.Event(sequence=2, iteration=1, check_finished=ev.CheckFinished(subject="judge", ok=True, rollouts=3))
    failure = ev.CheckFailure(rule="null_control", message="it passes backwards")
    failed = ev.CheckFinished(subject="judge", ok=False, rollouts=3, failures=[failure])
    lines = shown([first, again, ev.Event(sequence=3, iteration=1, check_finished=failed)], "normal")[0]
    assert lines == ["[1] judge passed its check", "[1] judge failed its check: null_control: it passes backwards"]
    assert "[1] judge passed its check on 3 rollouts of trained policies" in shown([first, again], "verbose")[0]


def test_the_reason_of_a_failure_is_not_a_line_and_a_summary() -> None:
    failed = ev.StateChanged(state=pb.SESSION_STATE_FAILED, reason="it broke")
    assert event_lines.line(ev.Event(state_changed=failed)) == "session failed"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Background]:
    estimate = session_service_pb2.EstimateSessionResponse()
    judgment = pb.Judgment(score=0.6)
    ended = pb.Session(state=pb.SESSION_STATE_EXHAUSTED, best_judgment=judgment)
    fake = FakeOrchestrator(estimate=estimate, ended=ended)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


@pytest.mark.parametrize(("below", "code"), [("0.5", 0), ("0.6", 0), ("0.61", 3)])
def test_a_low_score_fails_where_asked(server: Background, below: str, code: int) -> None:
    assert invoke(["run", "hop", "--env", "Hopper-v5", "--quiet", "--fail-below", below]) == code
    assert invoke(["sessions", "watch", "s1", "-q", "--fail-below", below]) == code
    assert invoke(["sessions", "watch", "s1", "-q"]) == 0


def test_the_newest_session_has_a_name(server: Background, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["sessions", "show", "@latest"]) == 2
    assert "there is no session yet" in capsys.readouterr().err
    assert invoke(["run", "hop", "--env", "Hopper-v5", "-q"]) == 0
    assert invoke(["sessions", "show", "@latest", "--json"]) == 0
    assert invoke(["sessions", "steer", "@latest", "lower"]) == 0
    assert server.fake.requests["SteerSession"][0].name == "sessions/s1"


def test_a_session_is_run_from_a_file(server: Background, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["run", "hop", "--env", "Hopper-v5", "--seeds", "2", "--budget-minutes", "3", "--config", "a:epochs=4"]
    assert invoke([*given, "--dump"]) == 0
    path = tmp_path / "session.yaml"
    path.write_text(capsys.readouterr().out)
    assert server.fake.requests["CreateSession"] == []
    assert invoke(["run", "--file", str(path), "--threshold", "0.9", "-q"]) == 0
    assert invoke([*given, "--threshold", "0.9", "-q"]) == 0
    first, second = (request.spec for request in server.fake.requests["CreateSession"])
    assert first == second and first.pass_threshold == 0.9


@pytest.mark.parametrize("text", ["intent: [", "- a", "intnt: hop", "seed: many"])
def test_a_file_that_is_no_spec_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "session.yaml"
    path.write_text(text)
    assert invoke(["run", "-f", str(path), "--dump"]) == 1
    assert capsys.readouterr().err.startswith("error: --file: cannot be parsed")


def test_the_schema_accepts_specs_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for path in sorted((Path(__file__).parents[3] / "examples").glob("behaviours*/*/session.json")):
        spec = session_file.read_spec(path, field="file")
        validator.validate(MessageToDict(spec, preserving_proto_field_name=True))
    assert not validator.is_valid({"intnt": "hop"})
    assert not validator.is_valid({"reward": {"seeds": "three"}})


@pytest.mark.parametrize("name", ["Hoper-v5", "hopper", "Hopper-v4"])
def test_a_misspelt_environment_is_asked_for(name: str) -> None:
    with pytest.raises(NotFound, match=r"did you mean Hopper-v5\?"):
        load_card(name)


def test_keys_are_not_broken_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    key = "sessions/s1/" + "x" * 90 + ".npz"
    output.print_table(("rollout", "return"), [(key, "1.0")], whole=("rollout",))
    assert key in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("", "a\nb\n", "a\nb\n"),
        ("a\nb\n", "a\nb\n", ""),
        ("a\nb\n", "a\nb\nc\n", "c\n"),
        ("x" * 600 + "end\n", "x" * 509 + "end\nmore\n", "more\n"),
        ("old\n", "entirely new\n", "\n… (lines are missing here)\nentirely new\n"),
    ],
)
def test_a_followed_log_prints_what_is_new(before: str, after: str, new: str) -> None:
    assert new_text(before, after) == new


@pytest.mark.parametrize(
    ("arguments", "text"), [(["--version"], "dressage 0."), (["-h"], "Usage"), (["run", "-h"], "--env")]
)
def test_version_and_short_help(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(arguments) == 0
    assert text in capsys.readouterr().out


def test_a_shell_completes_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_DRESSAGE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "dressage sess")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        invoke([])
    assert "sessions" in capsys.readouterr().out


def test_a_session_on_the_server_of_an_ended_command_names_the_next_one() -> None:
    async def gone(_: str) -> pb.Session:
        raise errors.Unavailable("no answer")

    def follow(kind: str) -> str:
        client = SimpleNamespace(get_session=gone)
        connection = SimpleNamespace(client=client, kind=kind, flags="")
        options = SimpleNamespace(as_json=False, detail="quiet")

        async def work() -> None:
            await run.follow("sessions/s1", connection, options, signals=asyncio.Queue())  # type: ignore[arg-type]

        with pytest.raises(errors.Unavailable) as caught:
            asyncio.run(work())
        return caught.value.message

    assert follow("joined").endswith("To continue it: dressage sessions watch s1") and follow("stack") == "no answer"


def test_zero_has_no_sign() -> None:
    assert texts.return_text(-0.3) == "0" and texts.score_text(-0.001) == "0.00" and texts.return_text(-3.2) == "-3"
