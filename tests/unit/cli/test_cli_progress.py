"""The live view: a pure fold over events, and a picture of its state."""

from __future__ import annotations

import pytest
from dressage.api.v1 import event_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.sdk import event_lines, texts
from dressage.sdk.event_lines import line
from dressage.sdk.picture import render
from dressage.sdk.progress import View, advance
from dressage.sdk.texts import duration
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

RUN = "sessions/a/runs/r1"
TRAIN = "sessions/a/iterations/1/assignments/train"


def member(name: str, steps: int, target: int = 100_000, **metrics: float) -> session_pb2.Member:
    return session_pb2.Member(name=f"{TRAIN}/members/{name}", env_steps=steps, target_env_steps=target, metrics=metrics)


def story() -> list[pb.Event]:
    """A session from its beginning to its end, as the orchestrator reports it."""
    progressed = pb.Progress(
        assignment=TRAIN,
        members=[member("base-s0", 40_000, episode_return=812.4), member("base-s1", 38_000)],
        steps_per_second=20_000,
        seconds_left=6.1,
    )
    evaluation = session_pb2.Evaluation(env_step=50_000, returns=[900, 1100], speeds=[3.0, 4.0])
    failure = pb.CheckFailure(rule="shape", line=7, message="term speed has shape (N, 1), expected (N,)")
    payloads: list[pb.Event] = [
        pb.Event(state_changed=pb.StateChanged(state=session_pb2.SESSION_STATE_RUNNING)),
        pb.Event(iteration=1, phase_changed=pb.PhaseChanged(phase=session_pb2.PHASE_PROPOSE)),
        pb.Event(
            iteration=1,
            agent_replied=pb.AgentReplied(
                role="reward_author", model="m", summary="2 terms", cost=session_pb2.Cost(dollars=0.02)
            ),
        ),
        pb.Event(iteration=1, check_finished=pb.CheckFinished(subject="reward", ok=False, failures=[failure])),
        pb.Event(iteration=1, check_finished=pb.CheckFinished(subject="reward", ok=True)),
        pb.Event(iteration=1, phase_changed=pb.PhaseChanged(phase=session_pb2.PHASE_EVALUATE)),
        pb.Event(iteration=1, run_changed=pb.RunChanged(run=RUN, state=session_pb2.RUN_STATE_RUNNING, attempt=1)),
        pb.Event(iteration=1, progress=progressed),
        pb.Event(
            iteration=1,
            evaluation_finished=pb.EvaluationFinished(member=f"{TRAIN}/members/base-s0", evaluation=evaluation),
        ),
        pb.Event(
            iteration=1,
            judged=pb.Judged(subject=f"{TRAIN}/members/base-s0", judgment=session_pb2.Judgment(score=0.8)),
        ),
        pb.Event(
            iteration=1,
            judged=pb.Judged(subject="sessions/a/iterations/1", judgment=session_pb2.Judgment(score=0.75, passed=True)),
        ),
        pb.Event(state_changed=pb.StateChanged(state=session_pb2.SESSION_STATE_SUCCEEDED)),
    ]
    for number, event in enumerate(payloads, start=1):
        event.sequence = number
    return payloads


def fold(events: list[pb.Event]) -> View:
    view = View(session="sessions/a", started=0.0, max_iterations=5)
    for event in events:
        view = advance(view, event)
    return view


def drawn(view: View, *, now: float = 65.0, width: int = 140) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render(view, now=now))
    return capture.get()


def test_the_view_has_the_values_of_the_events():
    view = fold(story())
    assert (view.iteration, view.state) == (1, session_pb2.SESSION_STATE_SUCCEEDED)
    first, second = view.members["base-s0"], view.members["base-s1"]
    assert (first.steps, first.target, first.episode_return) == (40_000, 100_000, 812.4)
    assert (first.stock_return, first.speed, first.score) == (1000.0, 3.5, 0.8)
    assert (second.episode_return, second.stock_return) == (None, None)
    assert view.best_score == 0.75
    assert view.dollars == 0.02


def test_the_picture_shows_phase_members_rate_and_time_left():
    text = drawn(fold(story()[:9]))
    assert "iteration 1/5" in text
    assert "training" in text
    assert "20,000 steps/s" in text
    assert "1 min 05 s" in text
    row = next(each for each in text.splitlines() if "base-s0" in each)
    assert "40,000" in row and "812" in row and "1000" in row and "3.50" in row
    assert "6 s" in row, "60k steps at 10k steps/s each"


def test_a_narrow_terminal_and_an_empty_view_are_drawn_too():
    assert "pending" in drawn(View(session="sessions/a", started=0.0), width=40)
    assert drawn(fold(story()), width=30)


def test_a_new_iteration_and_a_new_assignment_begin_with_empty_members():
    view = fold(story())
    later = pb.Event(sequence=50, iteration=2, phase_changed=pb.PhaseChanged(phase=session_pb2.PHASE_PROPOSE))
    assert advance(view, later).members == {}
    other = pb.Event(
        sequence=51, iteration=1, progress=pb.Progress(assignment=TRAIN + "2", members=[member("base-s9", 1)])
    )
    assert list(advance(view, other).members) == ["base-s9"]


@given(repeats=st.lists(st.integers(0, 11), max_size=20))
def test_events_seen_before_change_nothing(repeats: list[int]):
    events = story()
    view = fold(events)
    for index in repeats:
        assert advance(view, events[index]) == view


@given(st.permutations(range(12)))
def test_no_order_of_events_breaks_the_view(order: list[int]):
    events = story()
    view = View(session="sessions/a", started=0.0)
    for position, index in enumerate(order, start=1):
        event = pb.Event()
        event.CopyFrom(events[index])
        event.sequence = position
        view = advance(view, event)
    assert drawn(view)


def test_every_kind_of_event_except_rollout_judgments_is_one_line():
    texts = [line(event) for event in story()]
    assert all(texts)
    assert all("\n" not in text for text in texts if text)
    assert texts[3] == "[1] reward failed its check: shape at line 7: term speed has shape (N, 1), expected (N,)"
    assert "trained 39 % at 20,000 steps/s, return base-s0 812, 6 s left" in str(texts[7])
    judged = pb.Judged(subject=f"{TRAIN}/members/m/rollouts/1_p10.npz", judgment=session_pb2.Judgment(score=1))
    assert line(pb.Event(judged=judged)) is None
    assert line(pb.Event()) is None


def test_every_payload_of_the_api_has_a_text():
    kinds = {field.name for field in pb.Event.DESCRIPTOR.oneofs_by_name["payload"].fields}
    assert kinds == {*event_lines._WRITERS, *event_lines._WRITERS_IN_SESSION}


def test_of_many_assignments_and_candidates_those_that_fail_have_a_line():
    def text(state, failures=0, **failure):
        changed = pb.AssignmentChanged(assignment=TRAIN, state=state, failures=failures)
        changed.failure.CopyFrom(session_pb2.Failure(**failure))
        return line(pb.Event(iteration=1, assignment_changed=changed))

    assert text(session_pb2.ASSIGNMENT_STATE_PENDING) is None and text(session_pb2.ASSIGNMENT_STATE_SUCCEEDED) is None
    assert text(session_pb2.ASSIGNMENT_STATE_PENDING, 2) == "[1] assignments/train is retried after 2 failures"
    assert text(session_pb2.ASSIGNMENT_STATE_FAILED, message="why") == "[1] assignments/train failed: why"
    result = session_pb2.CandidateResult(id="c1", returns=[1.0])
    assert line(pb.Event(candidate_evaluated=pb.CandidateEvaluated(assignment=TRAIN, result=result))) is None
    result.failure.message = "raised"
    evaluated = pb.CandidateEvaluated(assignment=TRAIN, result=result)
    assert line(pb.Event(candidate_evaluated=evaluated)) == "candidate c1 failed: raised"
    improvement = session_pb2.SearchImprovement(evaluated=40, score=12.5)
    improved = pb.Event(search_improved=pb.SearchImproved(assignment=TRAIN, improvement=improvement))
    assert line(improved) == "search: 12.5 after 40 candidates"


def test_durations_are_for_people():
    assert [duration(seconds) for seconds in (-3, 0.4, 59.4, 60, 3599, 7800)] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min 00 s",
        "59 min 59 s",
        "2 h 10 min",
    ]


def test_a_training_that_takes_whole_updates_is_never_more_than_done():
    members = [member("base-s0", 131_072), member("base-s1", 100_000)]
    assert line(pb.Event(progress=pb.Progress(members=members))) == "trained 100 % at 0 steps/s"
    members = [member("base-s0", 131_072), member("base-s1", 50_000)]
    assert line(pb.Event(progress=pb.Progress(members=members))) == "trained 75 % at 0 steps/s"


def test_a_count_of_one_is_singular():
    assert [texts.quantity(number, "step") for number in (0, 1, 2_000)] == ["0 steps", "1 step", "2,000 steps"]


def test_large_returns_have_an_exponent():
    assert [texts.return_text(value) for value in (0.4, -12345.6, 1e300)] == ["0", "-12346", "1e+300"]
    assert texts.return_text(2.345, decimals=1) == "2.3"


@pytest.mark.parametrize(
    ("method", "first", "again"),
    [
        ("", "", " on fresh seeds"),
        ("reward", "", " on fresh seeds"),
        ("parameters", " on search seeds", " on report seeds"),
        ("program", " on search states", " on report states"),
    ],
)
def test_a_score_states_what_it_is_measured_on(method: str, first: str, again: str):
    scores = [pb.Scored(score=1.0, passed=False), pb.Scored(score=0.98, confirmed=True)]
    lines = [line(pb.Event(iteration=1, scored=scored), method=method) for scored in scores]
    decided = "" if first else ", not passed"  # only report seeds or states decide on a search
    assert lines == [f"[1] score{first} 1.00{decided}", f"[1] score{again} 0.98, not passed"]


def test_the_view_of_a_search_has_scores_and_a_goal_and_no_members():
    view = View(session="sessions/a", started=0.0, method="number", goal="475")
    for sequence, (score, confirmed) in enumerate([(-12345.6, False), (412.5, False), (300.0, True)], start=1):
        scored = pb.Scored(score=score, confirmed=confirmed)
        view = advance(view, pb.Event(sequence=sequence, iteration=sequence, scored=scored))
    phase = pb.PhaseChanged(phase=session_pb2.PHASE_EVALUATE)
    view = advance(view, pb.Event(sequence=4, iteration=3, phase_changed=phase))
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render(view, now=1.0))
    text = capture.get()
    assert "best score 412 of 475" in text and "evaluating" in text and "member" not in text
    assert "[1] score -12346, not passed" in text and "[3] score on fresh seeds 300, not passed" in text
    assert line(pb.Event(phase_changed=phase)) == "training"


@pytest.mark.parametrize(
    ("evaluated", "rate", "shown"),
    [
        (2_000_000, 51_234.0, "searched 2,000,000 candidates at 51,234 a second"),
        (172, 0.06, "searched 172 candidates"),
        (172, 0.0, "searched 172 candidates"),
    ],
)
def test_a_search_whose_candidates_take_long_has_a_line_too(evaluated: int, rate: float, shown: str):
    progress = pb.Progress(activity="searching", evaluated=evaluated, candidates_per_second=rate)
    assert line(pb.Event(iteration=1, progress=progress)) == f"[1] {shown}"
