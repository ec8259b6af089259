"""Durations of sessions, and as text."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as pb


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
