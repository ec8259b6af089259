"""The live view of a session, as pure functions of its events.

`advance(view, event)` updates the view; `render(view, now=…)` of `picture` draws it; `line(event)` formats an event as one
line, for logs and pipes. Time is an argument, so that a test can draw the same picture twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from dressage.api.v1 import event_pb2, session_pb2, session_service_pb2
from dressage.sdk import methods
from dressage.sdk.checkpoints import Checkpoints
from dressage.sdk.event_lines import is_member, line
from dressage.sdk.texts import mean, quantity, queue_text, score_text, short

_KEPT_LINES = 8
_DETAILED_ITERATIONS = 3
_ROUTINE = ("phase_changed", "agent_replied", "check_finished", "candidate_evaluated", "scored")
_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class MemberView:
    """One policy in training, as displayed."""

    steps: int = 0
    target: int = 0
    episode_return: float | None = None  # under the proposed reward
    stock_return: float | None = None  # mean over the last evaluation, under the environment's reward
    speed: float | None = None
    score: float | None = None
    failure: str = ""


@dataclass(frozen=True)
class View:
    """The displayed state of a session."""

    session: str
    started: float
    max_iterations: int = 0
    method: str = ""
    goal: str = ""
    flags: str = ""
    """Options, with a leading space, with which a command uses the session's server."""
    iteration: int = 0
    state: session_pb2.SessionState.ValueType = session_pb2.SESSION_STATE_PENDING
    phase: session_pb2.Phase.ValueType = session_pb2.PHASE_UNSPECIFIED
    assignment: str = ""
    members: Mapping[str, MemberView] = field(default_factory=lambda: _EMPTY)
    steps_per_second: float = 0.0
    seconds_left: float = 0.0
    best_score: float | None = None
    judged_iteration: int = 0
    """The iteration whose judgment came last."""
    dollars: float = 0.0
    episodes: int = 0
    candidates: int = 0
    earlier_candidates: int = 0
    """Candidates of earlier iterations, because a search by the trainer counts its own."""
    evaluations: int = 0
    """Evaluations of each member in a training; 0 if unknown."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    queue: str = ""
    """Place of a session that waits in the queue, as text."""
    notice: str = ""
    """Line about several events together, of which the last event is the last."""
    lines: tuple[str, ...] = ()
    sequence: int = 0


def advance(view: View, event: event_pb2.Event) -> View:
    """Return the view after an event. A repeated event changes nothing."""
    if event.sequence and event.sequence <= view.sequence:
        return view
    view = replace(view, sequence=event.sequence or view.sequence, notice="", queue="")
    if event.iteration > view.iteration:
        view = replace(
            view, iteration=event.iteration, members=_EMPTY, assignment="", steps_per_second=0.0, seconds_left=0.0
        )
        view = replace(view, checkpoints=Checkpoints(judged=view.checkpoints.judged))
        view = replace(view, earlier_candidates=view.candidates)
    kind = event.WhichOneof("payload")
    if kind == "state_changed":
        view = replace(view, state=event.state_changed.state)
    elif kind == "phase_changed":
        view = replace(view, phase=event.phase_changed.phase, steps_per_second=0.0, seconds_left=0.0)
    elif kind == "agent_replied":
        view = replace(view, dollars=view.dollars + event.agent_replied.cost.dollars)
    elif kind == "progress":
        view = _with_progress(view, event.progress)
    elif kind == "evaluation_finished":
        view = _with_evaluation(view, event.evaluation_finished)
    elif kind == "judged":
        view = _with_judgment(view, event.judged)
    elif kind == "scored" and not event.scored.confirmed:
        view = replace(view, best_score=_highest(view, event.scored.score))
    elif kind == "candidate_evaluated":
        played = len(event.candidate_evaluated.result.returns)
        view = replace(view, episodes=view.episodes + played, candidates=view.candidates + 1)
    elif kind == "search_improved":
        improvement = event.search_improved.improvement
        candidates = view.earlier_candidates + improvement.evaluated
        view = replace(view, best_score=_highest(view, improvement.score), candidates=candidates)
    view = _with_checkpoints(view, event)
    silent = (kind in _WITHOUT_LINE and not _is_program(event)) or is_routine(event, method=view.method)
    text = view.notice or (
        None if silent or is_detail(event, view) else line(event, method=view.method, flags=view.flags)
    )
    new = text is not None and view.lines[-1:] != (text,)
    return replace(view, lines=(*view.lines, str(text))[-_KEPT_LINES:]) if new else view


def after(view: View, response: session_service_pb2.WatchSessionResponse) -> View:
    """Return the view after a response of a watch: an event, or a place in the queue, which the view's notice then states."""
    if not response.HasField("queue"):
        return advance(view, response.event)
    text = queue_text(response.queue)
    return replace(view, queue=text, notice=text)


def _with_checkpoints(view: View, event: event_pb2.Event) -> View:
    """Return the view with the content of an event about checkpoints, and the line of one that is complete."""
    kind, checkpoints = event.WhichOneof("payload"), view.checkpoints
    if kind == "evaluation_finished":
        checkpoints = checkpoints.with_evaluation(short(event.evaluation_finished.member), event.evaluation_finished)
    elif kind == "judged" and is_member(event.judged.subject):
        fresh = view.phase == session_pb2.PHASE_CONFIRM
        checkpoints = checkpoints.with_judgment(short(event.judged.subject), event.judged, fresh=fresh)
    else:
        return view
    alive = sum(1 for member in view.members.values() if not member.failure)
    checkpoints, text = checkpoints.take(alive)
    return replace(view, checkpoints=checkpoints, notice=f"[{event.iteration}] {text}" if text else "")


def is_detail(event: event_pb2.Event, view: View) -> bool:
    """Return whether an event has its own line only in a verbose output, because another line has its content.

    :param view: with the event.
    """
    kind = event.WhichOneof("payload")
    if kind == "judged":
        return is_member(event.judged.subject)
    if kind == "scored":  # the judgment of the iteration before it has the score
        return not event.scored.confirmed and event.iteration == view.judged_iteration
    if kind == "check_finished":  # the check before the training has the line of a judge that passes
        return event.check_finished.ok and event.check_finished.rollouts > 0
    return kind in ("evaluation_finished", "artifact_written")  # the table at the end has policy and video


def evaluating(view: View) -> tuple[int, int] | None:
    """Return how many checkpoints of how many are evaluated, once the training itself is complete; None before."""
    members = [member for member in view.members.values() if not member.failure]
    total = view.evaluations * len(members)
    complete = members and all(member.target and member.steps >= member.target for member in members)
    if view.phase != session_pb2.PHASE_EVALUATE or not complete or view.checkpoints.evaluated >= total:
        return None
    return view.checkpoints.evaluated, total


def _is_program(event: event_pb2.Event) -> bool:
    """Return whether a search found a better program: each has a line."""
    return bool(event.search_improved.improvement.program)


def is_routine(event: event_pb2.Event, *, method: str) -> bool:
    """Return whether an event is not shown by itself, because a search has many iterations that are alike.

    :param method: name of the session's method; events of `reward` are never routine.
    """
    kind = event.WhichOneof("payload")
    if method in ("", "reward") or event.iteration <= _DETAILED_ITERATIONS or kind not in _ROUTINE:
        return False
    if kind == "check_finished":
        return event.check_finished.ok
    if kind == "candidate_evaluated":
        return not event.candidate_evaluated.result.HasField("failure")
    return not (kind == "scored" and event.scored.confirmed)


def search_line(view: View) -> str:
    """Return the state of a search in one line."""
    of = f"/{view.max_iterations}" if view.max_iterations else ""
    return f"[{view.iteration}{of}] {', '.join(search_parts(view)) or 'searching'}"


def search_parts(view: View) -> list[str]:
    """Return best score, candidates and episodes of a search as texts; empty for other methods."""
    parts = []
    if view.best_score is not None:
        goal = f" of {view.goal}" if view.goal else ""
        parts.append(f"best score {score_text(view.best_score)}{goal}")
    if view.candidates:
        parts.append(quantity(view.candidates, "candidate"))
    if view.episodes:
        parts.append(quantity(view.episodes, "episode"))
    return parts


def _highest(view: View, score: float) -> float:
    return score if view.best_score is None else max(score, view.best_score)


def _with_progress(view: View, progress: event_pb2.Progress) -> View:
    members = dict(view.members) if progress.assignment == view.assignment else {}
    if progress.assignment != view.assignment:
        view = replace(view, checkpoints=Checkpoints(judged=view.checkpoints.judged))
    for member in progress.members:
        key = short(member.name)
        metrics: Mapping[str, float] = member.metrics
        members[key] = replace(
            members.get(key, MemberView()),
            steps=member.env_steps,
            target=member.target_env_steps,
            episode_return=metrics.get("episode_return"),
            failure=member.failure.message,
        )
    return replace(
        view,
        assignment=progress.assignment,
        members=MappingProxyType(members),
        steps_per_second=progress.steps_per_second,
        seconds_left=progress.seconds_left,
        candidates=max(view.candidates, view.earlier_candidates + progress.evaluated),
    )


def _with_evaluation(view: View, finished: event_pb2.EvaluationFinished) -> View:
    key, evaluation = short(finished.member), finished.evaluation
    member = replace(
        view.members.get(key, MemberView()),
        stock_return=mean(evaluation.returns),
        speed=mean(evaluation.speeds),
    )
    return replace(view, members=MappingProxyType({**view.members, key: member}))


def _with_judgment(view: View, event: event_pb2.Judged) -> View:
    score = event.judgment.score
    if is_member(event.subject):
        key = short(event.subject)
        member = replace(view.members.get(key, MemberView()), score=score)
        return replace(view, members=MappingProxyType({**view.members, key: member}))
    if event.subject.rpartition("/")[0].endswith("/iterations"):
        number = short(event.subject)
        judged_iteration = int(number) if number.isdigit() else 0
        return replace(view, best_score=_highest(view, score), judged_iteration=judged_iteration)
    return view


def is_search(session: session_pb2.Session) -> bool:
    """Return whether the session's method evaluates candidates, and has a score on report seeds."""
    return session.HasField("report") or session.candidates > 0 or session.episodes > 0


def target(session: session_pb2.Session) -> float | None:
    """Return the mean return from which a search succeeds; None if there is none."""
    try:
        return float(session.goal)
    except ValueError:
        return methods.target_of(session.spec)


_WITHOUT_LINE = ("progress", "phase_changed", "state_changed", "evaluation_finished", "search_improved")
"""Events that the headline or the table of the live view shows."""
