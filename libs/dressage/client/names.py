"""Full resource names from short ones: `abc` and `sessions/abc` both name the session `abc`."""

from __future__ import annotations

from typing import TypeVar

from dressage import errors
from dressage.api.v1 import benchmark_service_pb2, session_pb2

Spec = TypeVar("Spec", session_pb2.SessionSpec, benchmark_service_pb2.BenchmarkCase)


def session_name(text: str) -> str:
    """`sessions/{session}`.

    :raises InvalidArgument: if the text is empty or names something below a session.
    """
    return _name("sessions", text, field="session")


def environment_name(text: str) -> str:
    """`environments/{environment}`; the id may have a namespace, as in `karel/DoorKey`."""
    return _name("environments", text, field="environment", namespace=True)


def benchmark_name(text: str) -> str:
    """`benchmarks/{benchmark}`."""
    return _name("benchmarks", text, field="benchmark")


def with_full_names(spec: Spec) -> Spec:
    """Return the message with its environment's full name: `Hopper-v5` becomes `environments/Hopper-v5`."""
    if not spec.environment or spec.environment.startswith("environments/"):
        return spec
    copy = type(spec)()
    copy.CopyFrom(spec)
    copy.environment = environment_name(spec.environment)
    return copy


def _name(collection: str, text: str, *, field: str, namespace: bool = False) -> str:
    last = text.strip().removeprefix(f"{collection}/")
    parts = last.split("/")
    if not all(parts) or len(parts) > 1 + namespace:
        raise errors.InvalidArgument(field=field, value=text, expected=f"an id, or {collection}/ID")
    return f"{collection}/{last}"
