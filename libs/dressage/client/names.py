"""Resource names from what a person types: `abc` and `sessions/abc` both name the session `abc`."""

from __future__ import annotations

from dressage import errors


def session_name(text: str) -> str:
    """`sessions/{session}`.

    :raises InvalidArgument: if the text is empty or names something below a session.
    """
    return _name("sessions", text, field="session")


def environment_name(text: str) -> str:
    """`environments/{environment}`."""
    return _name("environments", text, field="environment")


def benchmark_name(text: str) -> str:
    """`benchmarks/{benchmark}`."""
    return _name("benchmarks", text, field="benchmark")


def _name(collection: str, text: str, *, field: str) -> str:
    last = text.strip().removeprefix(f"{collection}/")
    if not last or "/" in last:
        raise errors.InvalidArgument(field=field, value=text, expected=f"an id, or {collection}/ID")
    return f"{collection}/{last}"
