"""Events of a session as lines of text, for logs, pipes and the live view."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import event_pb2, session_pb2
from dressage.sdk import texts
from dressage.sdk.texts import duration, mean, quantity, return_text, score_text, short

PHASES = {
    session_pb2.PHASE_PROPOSE: "preparing the reward",
    session_pb2.PHASE_CHECK: "checking",
    session_pb2.PHASE_EVALUATE: "training",
    session_pb2.PHASE_JUDGE: "judging",
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
    if phase == session_pb2.PHASE_CONFIRM:
        return f"confirming on {_scored_on(method)[1]}"
    return (PHASES if method in ("", "reward") else SEARCH_PHASES).get(phase)


def is_member(subject: str) -> bool:
    """Return whether a subject of a judgment is a member."""
    return "/members/" in subject and not subject.endswith(".npz")


def line(event: event_pb2.Event, *, method: str = "", flags: str = "") -> str | None:
    """Format an event as one line; None for an event that is not printed.

    :param method: name of the session's method; empty means `reward`.
    :param flags: options, with a leading space, with which a command uses the session's server.
    """
    kind = event.WhichOneof("payload") or ""
    text: str | None = None
    if kind in _WRITERS:
        text = _WRITERS[kind](getattr(event, kind))
    elif kind in _WRITERS_IN_SESSION:
        text = _WRITERS_IN_SESSION[kind](getattr(event, kind), method, flags)
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
        again = f" on {quantity(finished.rollouts, 'rollout')} of trained policies" if finished.rollouts else ""
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
        return f"{name} is retried after {quantity(changed.failures, 'failure')}"
    return None


def _format_candidate(evaluated: event_pb2.CandidateEvaluated) -> str | None:
    """Return a line only for a failure, because there are many candidates."""
    result = evaluated.result
    return f"candidate {result.id} failed: {result.failure.message}" if result.HasField("failure") else None


def _format_programs(collected: event_pb2.ProgramsCollected) -> str:
    source = f"{collected.model}: {collected.provenance}" if collected.provenance else collected.model
    programs = f"{quantity(collected.kept, 'program')}, {collected.distinct} different"
    return f"{programs}; {collected.usable} of {collected.requested:,} requested replies had one ({source})"


def _format_improvement(improved: event_pb2.SearchImproved) -> str:
    improvement = improved.improvement
    if improvement.program:
        return (
            f"search: {improvement.score:.4g} after {quantity(improvement.evaluated, 'program')}: {improvement.program}"
        )
    return f"search: {return_text(improvement.score, decimals=1)} after {quantity(improvement.evaluated, 'candidate')}"


def _format_progress(progress: event_pb2.Progress) -> str | None:
    if progress.activity == "compiling" and not progress.members:
        return "compiling the engine; the result is kept for later sessions"
    if progress.evaluated:
        rate = f" at {progress.candidates_per_second:,.0f} a second" if progress.candidates_per_second >= 1 else ""
        return f"searched {quantity(progress.evaluated, 'candidate')}{rate}"
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
    share = f"{100 * done / target:.0f} %" if target else quantity(done, "step")
    return_part = f", return {', '.join(returns)}" if returns else ""
    left = f", {duration(progress.seconds_left)} left" if progress.seconds_left > 0 else ""
    return f"trained {share} at {progress.steps_per_second:,.0f} steps/s{return_part}{left}"


def _format_evaluation(finished: event_pb2.EvaluationFinished) -> str:
    evaluation = finished.evaluation
    average, speed = mean(evaluation.returns), mean(evaluation.speeds)
    return_part = f" stock return {average:.0f}" if average is not None else ""
    fast = f", {speed:z.2f} m/s" if speed is not None else ""
    return f"{short(finished.member)} evaluated at {quantity(evaluation.env_step, 'step')}:{return_part}{fast}"


def _format_judged(event: event_pb2.Judged) -> str | None:
    if event.subject.endswith(".npz"):
        return None  # there are too many single rollouts
    verdict = "passed" if event.judgment.passed else "not passed"
    why = f": {event.judgment.diagnosis}" if event.judgment.diagnosis else ""
    member = f"{short(event.subject)} " if is_member(event.subject) else ""  # else the iteration, which begins the line
    return f"{member}judged {event.judgment.score:.2f}, {verdict}{why}"


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
    "judged": _format_judged,
    "warning": lambda warning: f"warning: {warning.message}",
    "note_added": lambda event: _format_note(event),
    "screened": lambda screened: _format_screened(screened),
    "training_stopped": lambda stopped: texts.stopped_text(stopped.early_stop),
    "training_extended": lambda extended: texts.extended_text(extended.extension),
    "warm_started": lambda started: texts.warm_start_text(started.warm_start),
    "approval_granted": lambda event: "approved" + (f": {event.note}" if event.note else ""),
    "artifact_written": lambda written: f"{written.kind}: {written.artifact}",
}


def _format_note(event: event_pb2.NoteAdded) -> str:
    parts = [
        *([f"note for the next revision: {event.note}"] if event.note else []),
        *(f"set: {what}" for what in event.set),
    ]
    return "; ".join(parts)


_SCORED_ON = {
    "program": ("search states", "report states"),
    "parameters": ("search seeds", "report seeds"),
    "code": ("search seeds", "report seeds"),
}
"""Where a search scores its candidates, and where it confirms one of them. The scores differ, and only the second decides."""


def _scored_on(method: str) -> tuple[str, str]:
    """Return where an iteration is scored, empty if that needs no name, and where it is confirmed."""
    return _SCORED_ON.get(method, ("", "fresh seeds"))


def _format_scored(scored: event_pb2.Scored, method: str) -> str:
    first, again = _scored_on(method)
    basis = again if scored.confirmed else first
    verdict = "passed" if scored.passed else "not passed"
    decides = scored.confirmed or method not in _SCORED_ON
    return f"score{basis and f' on {basis}'} {score_text(scored.score)}{f', {verdict}' if decides else ''}"


def _format_screened(screened: event_pb2.Screened) -> str | None:
    screening = screened.screening
    if not screening.HasField("agreement"):
        return None
    ending = ": sent back to its author" if screened.outcome == "rejected" else ""
    count = screening.trajectories
    return f"reward tried on {count} stored trajectories, rank agreement {screening.agreement:.2f}{ending}"


def _format_request(request: event_pb2.ApprovalRequested, flags: str) -> str:
    return f"waits for approval: dressage sessions approve {request.iteration.split('/')[1]}{flags}"


_WRITERS_IN_SESSION: dict[str, Any] = {
    "phase_changed": lambda changed, method, flags: phase_text(changed.phase, method),
    "scored": lambda scored, method, flags: _format_scored(scored, method),
    "approval_requested": lambda request, method, flags: _format_request(request, flags),
}
"""Events whose lines depend on the session's method or server."""
