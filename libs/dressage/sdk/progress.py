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
from dressage.sdk import lengths, methods
from dressage.sdk.checkpoints import Checkpoints
from dressage.sdk.durations import duration
from dressage.sdk.texts import counted as counted
from dressage.sdk.texts import queue_text

_KEPT_LINES = 8
_DETAILED_ITERATIONS = 3
_ROUTINE = ("phase_changed", "agent_replied", "check_finished", "candidate_evaluated", "scored")
_EMPTY: Mapping[str, Any] = MappingProxyType({})

PHASES = {
    session_pb2.PHASE_PROPOSE: "preparing the reward",
    session_pb2.PHASE_CHECK: "checking",
    session_pb2.PHASE_EVALUATE: "training",
    session_pb2.PHASE_JUDGE: "judging",
    session_pb2.PHASE_CONFIRM: "confirming on fresh seeds",
    session_pb2.PHASE_DELIVER: "drawing videos",
    session_pb2.PHASE_DONE: "done",
    session_pb2.PHASE_APPROVE: "waiting for your approval",
}


SEARCH_PHASES = {
    **PHASES,
    session_pb2.PHASE_PROPOSE: "proposing",
    session_pb2.PHASE_EVALUATE: "evaluating",
}
"""Texts for methods other than `reward`."""


def phase_text(phase: session_pb2.Phase.ValueType, method: str = "") -> str | None:
    """Return the activity of a session in a phase; None for a phase without text.

    :param method: name of its method; empty means `reward`.
    """
    return (PHASES if method in ("", "reward") else SEARCH_PHASES).get(phase)


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
        view = _progressed(view, event.progress)
    elif kind == "evaluation_finished":
        view = _evaluated(view, event.evaluation_finished)
    elif kind == "judged":
        view = _judged(view, event.judged)
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
    text = view.notice or (None if silent or is_detail(event, view) else line(event))
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
    kind, known = event.WhichOneof("payload"), view.checkpoints
    if kind == "evaluation_finished":
        known = known.with_evaluation(short(event.evaluation_finished.member), event.evaluation_finished)
    elif kind == "judged" and _is_member(event.judged.subject):
        known = known.with_judgment(short(event.judged.subject), event.judged)
    else:
        return view
    alive = sum(1 for member in view.members.values() if not member.failure)
    known, text = known.take(alive)
    return replace(view, checkpoints=known, notice=f"[{event.iteration}] {text}" if text else "")


def _is_member(subject: str) -> bool:
    return "/members/" in subject and not subject.endswith(".npz")


def is_detail(event: event_pb2.Event, view: View) -> bool:
    """Return whether an event has its own line only in a verbose output, because another line has its content.

    :param view: with the event.
    """
    kind = event.WhichOneof("payload")
    if kind == "judged":
        return _is_member(event.judged.subject)
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
        parts.append(counted(view.candidates, "candidate"))
    if view.episodes:
        parts.append(counted(view.episodes, "episode"))
    return parts


def _highest(view: View, score: float) -> float:
    return score if view.best_score is None else max(score, view.best_score)


def _progressed(view: View, progress: event_pb2.Progress) -> View:
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


def _evaluated(view: View, finished: event_pb2.EvaluationFinished) -> View:
    key, evaluation = short(finished.member), finished.evaluation
    member = replace(
        view.members.get(key, MemberView()),
        stock_return=mean(evaluation.returns),
        speed=mean(evaluation.speeds),
    )
    return replace(view, members=MappingProxyType({**view.members, key: member}))


def _judged(view: View, judged: event_pb2.Judged) -> View:
    score = judged.judgment.score
    if _is_member(judged.subject):
        key = short(judged.subject)
        member = replace(view.members.get(key, MemberView()), score=score)
        return replace(view, members=MappingProxyType({**view.members, key: member}))
    if judged.subject.rpartition("/")[0].endswith("/iterations"):
        number = short(judged.subject)
        judged_iteration = int(number) if number.isdigit() else 0
        return replace(view, best_score=_highest(view, score), judged_iteration=judged_iteration)
    return view


def short(name: str) -> str:
    """Return the last part of a resource name; the id of an environment may have a namespace, as in ``karel/DoorKey``."""
    prefix = "environments/"
    return name.removeprefix(prefix) if name.startswith(prefix) else name.rsplit("/", 1)[-1]


def return_text(value: float, *, decimals: int = 0) -> str:
    """Return a return as text, with an exponent if it is large."""
    return f"{value:z.{decimals}f}" if abs(value) < 1e9 else f"{value:.3g}"


def score_text(value: float) -> str:
    """Return a score as text: with two decimals if it is small, else as a return."""
    return f"{value:z.2f}" if abs(value) < 100 else return_text(value)


def mean_text(value: float) -> str:
    """Return a mean return as text: `0.74`, `498.2`."""
    return f"{value:z.2f}" if abs(value) < 100 else return_text(value, decimals=1)


def is_search(session: session_pb2.Session) -> bool:
    """Return whether the session's method evaluates candidates, and has a score on report seeds."""
    return session.HasField("report") or session.candidates > 0 or session.episodes > 0


def target(session: session_pb2.Session) -> float | None:
    """Return the mean return from which a search succeeds; None if there is none."""
    try:
        return float(session.goal)
    except ValueError:
        return methods.target_of(session.spec)


def mean(values: Any) -> float | None:
    """Return the mean of numbers; None if there are none."""
    return sum(values) / len(values) if len(values) else None


def line(event: event_pb2.Event, *, method: str = "") -> str | None:
    """Format an event as one line; None for an event that is not printed.

    :param method: name of the session's method; empty means `reward`.
    """
    kind = event.WhichOneof("payload")
    writer = _WRITERS.get(kind or "")
    if kind == "phase_changed":
        text = phase_text(event.phase_changed.phase, method)
    else:
        text = writer(getattr(event, kind)) if writer is not None and kind else None
    if text is None:
        return None
    text = " ".join(text.split())
    return f"[{event.iteration}] {text}" if event.iteration else text


def _format_state(changed: event_pb2.StateChanged) -> str:
    # The summary after the events has the reason.
    return f"session {session_pb2.SessionState.Name(changed.state).removeprefix('SESSION_STATE_').lower()}"


_COLLECTED = ("program_author", "program_reviser")
"""Roles of which many replies to one prompt are requested: one line shows them all."""


def _format_reply(replied: event_pb2.AgentReplied) -> str | None:
    if replied.role in _COLLECTED:
        return None
    cost = f" ({replied.cost.dollars:.4f} $)" if replied.cost.HasField("dollars") and replied.cost.dollars else ""
    return f"{replied.role.replace('_', ' ')} ({replied.model}): {replied.summary or 'answered'}{cost}"


def _format_check(finished: event_pb2.CheckFinished) -> str:
    if finished.ok:
        again = f" on {counted(finished.rollouts, 'rollout')} of trained policies" if finished.rollouts else ""
        return f"{finished.subject} passed its check{again}"
    problems = "; ".join(
        f"{failure.rule}{f' at line {failure.line}' if failure.line else ''}: {failure.message}"
        for failure in finished.failures
    )
    return f"{finished.subject} failed its check: {problems}"


def _format_run(changed: event_pb2.RunChanged) -> str | None:
    state = session_pb2.RunState.Name(changed.state).removeprefix("RUN_STATE_").lower()
    if changed.failure.message:
        return f"run {short(changed.run)} {state}: {changed.failure.message}"
    again = f" (attempt {changed.attempt})" if changed.attempt > 1 else ""
    return f"run {short(changed.run)} {state}{again}"


def _format_assignment(changed: event_pb2.AssignmentChanged) -> str | None:
    """Return a line only for a failure or a retry, because a search has thousands of assignments."""
    name = "/".join(changed.assignment.split("/")[-2:])
    if changed.state == session_pb2.ASSIGNMENT_STATE_FAILED:
        return f"{name} failed: {changed.failure.message or changed.failure.reason}"
    if changed.state == session_pb2.ASSIGNMENT_STATE_PENDING and changed.failures:
        return f"{name} is retried after {counted(changed.failures, 'failure')}"
    return None


def _format_candidate(evaluated: event_pb2.CandidateEvaluated) -> str | None:
    """Return a line only for a failure, because there are many candidates."""
    result = evaluated.result
    return f"candidate {result.id} failed: {result.failure.message}" if result.HasField("failure") else None


def _format_programs(collected: event_pb2.ProgramsCollected) -> str:
    source = f"{collected.model}: {collected.provenance}" if collected.provenance else collected.model
    kept = f"{counted(collected.kept, 'program')}, {collected.distinct} different"
    return f"{kept}; {collected.usable} of {collected.requested:,} requested replies had one ({source})"


def _format_improvement(improved: event_pb2.SearchImproved) -> str:
    improvement = improved.improvement
    if improvement.program:
        return (
            f"search: {improvement.score:.4g} after {counted(improvement.evaluated, 'program')}: {improvement.program}"
        )
    return f"search: {return_text(improvement.score, decimals=1)} after {counted(improvement.evaluated, 'candidate')}"


def _format_progress(progress: event_pb2.Progress) -> str | None:
    if progress.activity == "compiling" and not progress.members:
        return "compiling the engine; the result is kept for later sessions"
    if progress.candidates_per_second:
        return f"searched {counted(progress.evaluated, 'candidate')} at {progress.candidates_per_second:,.0f} a second"
    if not progress.members:
        return None
    if progress.activity == "waiting":
        return "waits for the judgments that decide whether it continues"
    # Training runs whole updates, so that a member may exceed its target.
    done = sum(min(member.env_steps, member.target_env_steps or member.env_steps) for member in progress.members)
    target = sum(member.target_env_steps for member in progress.members)
    returns = [
        f"{short(member.name)} {return_text(member.metrics['episode_return'])}"
        for member in progress.members
        if "episode_return" in member.metrics
    ]
    share = f"{100 * done / target:.0f} %" if target else counted(done, "step")
    shown = f", return {', '.join(returns)}" if returns else ""
    left = f", {duration(progress.seconds_left)} left" if progress.seconds_left > 0 else ""
    return f"trained {share} at {progress.steps_per_second:,.0f} steps/s{shown}{left}"


def _format_evaluation(finished: event_pb2.EvaluationFinished) -> str:
    evaluation = finished.evaluation
    average, speed = mean(evaluation.returns), mean(evaluation.speeds)
    shown = f" stock return {average:.0f}" if average is not None else ""
    fast = f", {speed:z.2f} m/s" if speed is not None else ""
    return f"{short(finished.member)} evaluated at {counted(evaluation.env_step, 'step')}:{shown}{fast}"


def _format_judged(judged: event_pb2.Judged) -> str | None:
    if judged.subject.endswith(".npz"):
        return None  # there are too many single rollouts
    verdict = "passed" if judged.judgment.passed else "not passed"
    why = f": {judged.judgment.diagnosis}" if judged.judgment.diagnosis else ""
    member = (
        f"{short(judged.subject)} " if _is_member(judged.subject) else ""
    )  # else the iteration, which begins the line
    return f"{member}judged {judged.judgment.score:.2f}, {verdict}{why}"


_WITHOUT_LINE = ("progress", "phase_changed", "state_changed", "evaluation_finished", "search_improved")
"""Events that the headline or the table of the live view shows."""

_WRITERS: dict[str, Any] = {
    "state_changed": _format_state,
    "agent_replied": _format_reply,
    "check_finished": _format_check,
    "run_changed": _format_run,
    "assignment_changed": _format_assignment,
    "candidate_evaluated": _format_candidate,
    "search_improved": _format_improvement,
    "programs_collected": _format_programs,
    "progress": _format_progress,
    "evaluation_finished": _format_evaluation,
    "phase_changed": lambda changed: phase_text(changed.phase),
    "judged": _format_judged,
    "scored": lambda scored: _format_scored(scored),
    "warning": lambda warning: f"warning: {warning.message}",
    "note_added": lambda given: _format_note(given),
    "screened": lambda screened: _format_screened(screened),
    "training_stopped": lambda stopped: lengths.stopped_text(stopped.early_stop),
    "training_extended": lambda extended: lengths.extended_text(extended.extension),
    "warm_started": lambda started: lengths.warm_start_text(started.warm_start),
    "approval_requested": lambda request: (
        f"waits for approval: dressage sessions approve {request.iteration.split('/')[1]}"
    ),
    "approval_granted": lambda given: "approved" + (f": {given.note}" if given.note else ""),
    "artifact_written": lambda written: f"{written.kind}: {written.artifact}",
}


def _format_note(given: event_pb2.NoteAdded) -> str:
    parts = [
        *([f"note for the next revision: {given.note}"] if given.note else []),
        *(f"set: {what}" for what in given.set),
    ]
    return "; ".join(parts)


def _format_scored(scored: event_pb2.Scored) -> str:
    seeds = " on fresh seeds" if scored.confirmed else ""
    return f"score{seeds} {score_text(scored.score)}, {'passed' if scored.passed else 'not passed'}"


def _format_screened(screened: event_pb2.Screened) -> str | None:
    screening = screened.screening
    if not screening.HasField("agreement"):
        return None
    ending = ": sent back to its author" if screened.outcome == "rejected" else ""
    count = screening.trajectories
    return f"reward tried on {count} stored trajectories, rank agreement {screening.agreement:.2f}{ending}"
