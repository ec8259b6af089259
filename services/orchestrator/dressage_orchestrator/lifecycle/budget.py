"""Checks of a session's budget. Pure: the caller reads the session and the clock."""

from __future__ import annotations

from datetime import datetime

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle.outcome import Exhausted


def require(session: v1.Session, *, now: datetime, next_env_steps: int = 0) -> None:
    """Check that no budget is exhausted.

    :param next_env_steps: environment steps of the next assignment.
    :raises Exhausted: if one is.
    """
    exhausted = used_up(session, now=now, next_env_steps=next_env_steps)
    if exhausted is not None:
        raise exhausted


def used_up(session: v1.Session, *, now: datetime, next_env_steps: int = 0) -> Exhausted | None:
    """Return the exhausted budget; None if there is none."""
    budget = session.spec.budget
    if budget.env_steps and session.env_steps + next_env_steps > budget.env_steps:
        spent = f"{session.env_steps} of {budget.env_steps} environment steps are used"
        message = f"{spent}; the next training needs {next_env_steps}" if next_env_steps else spent
        return Exhausted(message, v1.EXHAUSTION_REASON_ENV_STEPS)
    tokens = session.cost.input_tokens + session.cost.output_tokens
    if budget.tokens and tokens >= budget.tokens:
        return Exhausted(f"{tokens} of {budget.tokens} tokens are used", v1.EXHAUSTION_REASON_TOKENS)
    if budget.HasField("dollars") and session.cost.dollars and session.cost.dollars >= budget.dollars:
        message = f"{session.cost.dollars:.4f} of {budget.dollars:.4f} US dollars are used"
        return Exhausted(message, v1.EXHAUSTION_REASON_DOLLARS)
    if wall_time_exhausted(session, now=now):
        message = f"the session has run for its {budget.wall_time.ToTimedelta()}"
        return Exhausted(message, v1.EXHAUSTION_REASON_WALL_TIME)
    return None


def wall_time_exhausted(session: v1.Session, *, now: datetime) -> bool:
    """Whether the session has used its wall-clock budget."""
    deadline = wall_time_deadline(session)
    return deadline is not None and now.timestamp() >= deadline


def remaining(session: v1.Session, *, shares: int = 1) -> v1.Budget:
    """Remaining budget of a model call; fields that are not set are unlimited.

    :param shares: number of concurrent calls; each gets an equal share, so that they do not exceed the budget together.
    """
    budget, part = session.spec.budget, v1.Budget()
    if budget.tokens:
        rest = budget.tokens - session.cost.input_tokens - session.cost.output_tokens
        part.tokens = max(1, rest // shares)
    if budget.HasField("dollars"):
        part.dollars = max(0.0, budget.dollars - session.cost.dollars) / shares
    return part


def remaining_of_all_kinds(session: v1.Session, *, now: datetime) -> v1.Budget:
    """Remaining budget of a session, of all kinds; fields that are not set are unlimited."""
    budget, rest = session.spec.budget, remaining(session)
    if budget.env_steps:
        rest.env_steps = max(1, budget.env_steps - session.env_steps)
    deadline = wall_time_deadline(session)
    if deadline is not None:
        rest.wall_time.FromSeconds(max(0, round(deadline - now.timestamp())))
    return rest


def wall_time_deadline(session: v1.Session) -> float | None:
    """End of the wall-clock budget in seconds since the epoch; None without a limit."""
    if not session.spec.budget.HasField("wall_time") or not session.HasField("start_time"):
        return None
    begin = session.start_time.ToMicroseconds() / 1e6 + session.approval_wait_seconds + session.idle_seconds
    return begin + session.spec.budget.wall_time.ToTimedelta().total_seconds()
