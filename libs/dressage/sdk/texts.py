"""Numbers, names, durations and the course of a training as text."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import session_pb2 as pb


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: `1 episode`, `2,000 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def queue_text(queue: pb.QueuePlace) -> str:
    """Return a place in the queue as text: ``waits in the queue (2 of 5): the server runs as many …``."""
    return f"waits in the queue ({queue.place} of {queue.length}): {queue.reason}"


def short(name: str) -> str:
    """Return the last part of a resource name; the id of an environment may have a namespace, as in ``karel/DoorKey``."""
    prefix = "environments/"
    return name.removeprefix(prefix) if name.startswith(prefix) else name.rsplit("/", 1)[-1]


def origin_text(session: pb.Session) -> str:
    """Return where a session's best policy is from: ``iteration 2, default-s0 at 1,000 steps, score 0.90``.

    That of a session that did not end by itself names its state. Empty without a policy.
    """
    origin = session.policy_origin
    if not session.best_policy or not origin.iteration:
        return ""
    parts = [f"iteration {short(origin.iteration)}"]
    if origin.member:
        checkpoint = ", checkpoint" if origin.interrupted else ""
        parts.append(f"{short(origin.member)}{checkpoint} at {origin.env_step:,} steps")
    parts.append(f"score {score_text(origin.score)}" if origin.HasField("score") else "not judged")
    text = ", ".join(parts)
    if origin.HasField("comparison"):
        compared, verb = origin.comparison, "scored" if origin.HasField("score") else "returned"
        last = f"the last checkpoint, at {compared.last_env_step:,} steps, {verb} {score_text(compared.last_value)}"
        text += f" ({last} on the same fresh episodes)"
    state = _INTERRUPTED.get(session.state, "")
    return f"{text}; the session {state}" if state else text


_INTERRUPTED = {
    pb.SESSION_STATE_CANCELLED: "was cancelled",
    pb.SESSION_STATE_FAILED: "failed",
    pb.SESSION_STATE_RUNNING: "has not ended",
}


def return_text(value: float, *, decimals: int = 0) -> str:
    """Return a return as text, with an exponent if it is large."""
    return f"{value:z.{decimals}f}" if abs(value) < 1e9 else f"{value:.3g}"


def score_text(value: float, *, threshold: float | None = None) -> str:
    """Return a score as text: with two decimals if it is small, else as a return.

    :param threshold: a score close to it gets up to six decimals, until the text is on the score's side of it.
    """
    if abs(value) >= 100:
        return return_text(value)
    texts = (f"{value:z.{decimals}f}" for decimals in range(2, 6))
    clear = (text for text in texts if threshold is None or (float(text) < threshold) == (value < threshold))
    return next(clear, f"{value:z.6f}")


def mean_text(value: float) -> str:
    """Return a mean return as text: `0.74`, `498.2`."""
    return f"{value:z.2f}" if abs(value) < 100 else return_text(value, decimals=1)


def mean(values: Any) -> float | None:
    """Return the mean of numbers; None if there are none."""
    return sum(values) / len(values) if len(values) else None


def seconds_worked(session: pb.Session) -> float | None:
    """Return the time from start to end of a session without `seconds_waited`; None before its end."""
    if not session.HasField("start_time") or not session.HasField("end_time"):
        return None
    lasted = (session.end_time.ToMicroseconds() - session.start_time.ToMicroseconds()) / 1e6
    return max(0.0, lasted - seconds_waited(session))


def seconds_waited(session: pb.Session) -> float:
    """Return the time in which nothing worked on a session, or it waited for an approval."""
    return session.idle_seconds + session.approval_wait_seconds


def duration(seconds: float) -> str:
    """Return a duration as text: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def stopped_text(stopped: pb.EarlyStop) -> str:
    """Return why a training ends: `training ends early at 250,000 steps: …`"""
    early = stopped.reason in (pb.STOP_REASON_UNSPECIFIED, pb.STOP_REASON_PASSES_EARLY)
    text = f"training ends {'early ' if early else ''}at {quantity(stopped.env_step, 'step')}: {_reason(stopped)}"
    return f"{text}; {saved_text(stopped.env_steps_saved)}" if stopped.env_steps_saved else text


def _reason(stopped: pb.EarlyStop) -> str:
    required = f"({stopped.required_score:.2f} required)"
    match stopped.reason:
        case pb.STOP_REASON_PASSES:
            return f"the seeds scored {stopped.score:.2f} on average {required}"
        case pb.STOP_REASON_LEVEL:
            over = quantity(stopped.rise.checkpoints, "checkpoint")
            return f"neither scores nor returns rise over {over} (score {stopped.score:.2f}, {_chances(stopped.rise)})"
        case pb.STOP_REASON_BUDGET:
            return f"the time left does not suffice until the next checkpoint (score {stopped.score:.2f})"
        case pb.STOP_REASON_NOT_JUDGED:
            return "its checkpoints could not be judged"
        case _:
            return f"every seed scored at least {stopped.score:.2f} at two checkpoints {required}"


def _chances(rise: pb.Rise) -> str:
    return f"chance {rise.score_chance:.2f} for scores, {rise.return_chance:.2f} for returns"


def extended_text(extension: pb.Extension) -> str:
    """Return why a training continues: `training continues until 750,000 steps: …`"""
    rise = extension.rise
    rising = [name for name, rises in (("scores", rise.score_rises), ("returns", rise.return_rises)) if rises]
    why = f"{' and '.join(rising)} rise" if rising else "the rise has paused"
    why = "it barely passes, the next checkpoint decides" if extension.passes else why
    at = f"score {extension.score:.2f} at {quantity(extension.decided_at, 'step')}"
    return f"training continues until {quantity(extension.env_steps, 'step')}: {why} ({at}, {_chances(rise)})"


def course_text(course: pb.TrainingCourse) -> str:
    """Return how long a training lasted and why, for lists: `trained 750,000 of at most 2,000,000 steps: …`"""
    if course.max_steps <= course.expected_steps and not course.HasField("early_stop"):
        return ""
    text = f"trained {course.env_steps:,} steps ({course.expected_steps:,} expected, at most {course.max_steps:,})"
    if course.HasField("early_stop"):
        return f"{text}: {_reason(course.early_stop)}"
    return f"{text}: still rising at the end" if course.extensions else text


def warm_start_text(start: pb.WarmStart) -> str:
    """Return what a training continues from: `continues from the policies of iteration 2 …`"""
    number = start.iteration.rpartition("/")[2]
    if start.refused:
        return f"does not continue from iteration {number}: {start.refused}; it starts from random weights"
    value = "value network kept, as the reward is the same" if start.keeps_value else "value network reset"
    why = f": {start.reason}" if start.reason else ""
    by = f"decided by {start.decided_by}{why}"
    return f"continues from the policies of iteration {number} (score {start.score:.2f}; {value}; {by})"


def saved_text(steps: int) -> str:
    """Return the environment steps that were not trained, as text."""
    return f"{quantity(steps, 'environment step')} saved"
