"""Why a training continued or ended, and what it continued from, as text."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as pb
from dressage.sdk.texts import counted


def stopped_text(stopped: pb.EarlyStop) -> str:
    """Return why a training ends: `training ends early at 250,000 steps: …`"""
    early = stopped.reason in (pb.STOP_REASON_UNSPECIFIED, pb.STOP_REASON_PASSES_EARLY)
    text = f"training ends {'early ' if early else ''}at {counted(stopped.env_step, 'step')}: {_reason(stopped)}"
    return f"{text}; {saved_text(stopped.env_steps_saved)}" if stopped.env_steps_saved else text


def _reason(stopped: pb.EarlyStop) -> str:
    required = f"({stopped.required_score:.2f} required)"
    match stopped.reason:
        case pb.STOP_REASON_PASSES:
            return f"the seeds scored {stopped.score:.2f} on average {required}"
        case pb.STOP_REASON_LEVEL:
            over = counted(stopped.rise.checkpoints, "checkpoint")
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
    at = f"score {extension.score:.2f} at {counted(extension.decided_at, 'step')}"
    return f"training continues until {counted(extension.env_steps, 'step')}: {why} ({at}, {_chances(rise)})"


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
    return f"{counted(steps, 'environment step')} saved"
