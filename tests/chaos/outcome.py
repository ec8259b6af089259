"""What a session leaves behind, in a form in which a disturbed session equals an undisturbed one.

Times, rates, attempts and the session's name are left out; contents are not. Files are compared by content: JSON by its values,
rollouts by their arrays, others by their bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.client import Client
from google.protobuf.json_format import MessageToDict

_VOLATILE = re.compile(
    r"(^|_)(time|times|seconds|attempt|attempts|etag|uid|sequence|created|started|ended|pid|rate)$|per_second|_seconds_"
)
"""Names of values that are a matter of time, in JSON and in messages."""
_RACING = re.compile(r"^(cache_hits|episodes)$")
"""Counters of a search over programs: its threads share a cache, so how often each of them finds a program there varies."""
_RECOVERY = frozenset(
    {"SERVICE_UNAVAILABLE", "SERVICE_BUSY", "PROVIDER_UNAVAILABLE", "COST_RECOVERED", "STORE_UNAVAILABLE"}
)
"""Warnings of a session that say that it waited or recovered."""
_BEFORE, _AFTER = 80, 120
"""Characters of a text that are shown before and after its first difference."""
_SKIPPED = ("progress", "run_changed")
_UNCOMPARED = re.compile(r"/(checkpoints/|tb/)|/spec\.json$")
"""What depends on when a checkpoint was due, and TensorBoard's copy of the metrics."""


@dataclass(frozen=True)
class Outcome:
    """The comparable facts of a session."""

    state: str
    session: Any
    iterations: Any
    events: list[str]
    artifacts: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)
    """Compared contents of the artifacts that are JSON, to state where they differ."""
    requests: dict[str, int] = field(default_factory=dict)
    counted: int = 0
    """Requests that the session's cost states."""
    counted_by_iteration: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON."""
        return asdict(self)


def collect(
    client: Client, store: ArtifactStore, session: str, events: Iterable[ev.Event], requests: Counter[str]
) -> Outcome:
    """Read everything that a session left, after its end."""
    name = f"sessions/{session}"
    ended = client.get_session(name)
    iterations = [_message(entry, session) for entry in client.list_iterations(name)]
    artifacts, texts = {}, {}
    for info in store.list(f"{name}/"):
        key = info.key.removeprefix(f"{name}/")
        if not _UNCOMPARED.search(key):
            data = store.get(info.key)
            if key.endswith((".json", ".jsonl")):
                texts[key] = _text(key, data, session)
                artifacts[key] = _digest(texts[key].encode())
            else:
                artifacts[key] = _content(key, data, session)
    facts = _message(ended, session)
    counted, *by_iteration = (_pop_requests(entry) for entry in (facts, *iterations))
    facts.pop("candidates_per_second", None)
    return Outcome(
        state=v1.SessionState.Name(ended.state),
        session=facts,
        iterations=iterations,
        events=sorted(_events(events, session)),
        artifacts=artifacts,
        texts=texts,
        requests=dict(requests),
        counted=counted,
        counted_by_iteration=tuple(by_iteration),
    )


def _pop_requests(facts: Any) -> int:
    """Remove the cost from a session or an iteration; return its requests, of any role: a repeated one costs again."""
    facts.pop("cost_by_role", None)
    return int(facts.pop("cost", {}).get("requests", 0))


def differences(calm: Outcome, rough: Outcome, *, repeats: int) -> list[str]:
    """Return what differs between an undisturbed session and a disturbed one.

    :param repeats: requests that llm-agent had sent and not journalled when it was killed, which may be repeated.
    """
    lines = []
    if calm.state != rough.state:
        lines.append(f"state: {rough.state}, not {calm.state}: {rough.session.get('state_reason', '')}")
    lines += _tree("session", calm.session, rough.session)
    lines += _tree("iterations", calm.iterations, rough.iterations)
    lines += _tree("artifacts", calm.artifacts, rough.artifacts)
    lines += [
        f"{key}: {_first_difference(text, rough.texts[key])}"
        for key, text in calm.texts.items()
        if rough.texts.get(key, text) != text
    ]
    missing, extra = Counter(calm.events), Counter(rough.events)
    lines += [f"event missing: {text}" for text in (missing - extra).elements()]
    lines += [f"event added: {text}" for text in (extra - missing).elements()]
    added = Counter(rough.requests) - Counter(calm.requests)
    lines += [f"request missing: {text}" for text in (Counter(calm.requests) - Counter(rough.requests)).elements()]
    lines += [
        f"request that the undisturbed session did not send: {text}" for text in added if text not in calm.requests
    ]
    if added.total() > repeats:
        lines.append(f"{added.total()} requests repeated, at most {repeats} may be: {dict(added)}")
    counts = [("session", calm.counted, rough.counted)]
    for number, pair in enumerate(zip(calm.counted_by_iteration, rough.counted_by_iteration, strict=False), 1):
        counts.append((f"iteration {number}", *pair))
    for name, expected, counted in counts:
        if not expected <= counted <= expected + added.total():
            lines.append(
                f"cost: {counted} requests counted for {name}, {expected} undisturbed, {added.total()} repeats"
            )
    return lines


def _tree(path: str, calm: Any, rough: Any) -> list[str]:
    """Return the differences of two JSON values, by path."""
    if isinstance(calm, dict) and isinstance(rough, dict):
        return [
            line
            for name in sorted(calm.keys() | rough.keys())
            for line in _tree(f"{path}.{name}", calm.get(name), rough.get(name))
        ]
    if isinstance(calm, list) and isinstance(rough, list) and len(calm) == len(rough):
        return [line for i, (a, b) in enumerate(zip(calm, rough, strict=True)) for line in _tree(f"{path}[{i}]", a, b)]
    if calm == rough or (isinstance(calm, float) and calm != calm and rough != rough):
        return []
    return [f"{path}: {str(rough)[:300]}, not {str(calm)[:300]}"]


def _events(events: Iterable[ev.Event], session: str) -> Iterable[str]:
    """Return the events as text; those that say that work was taken up again occur once."""
    once = set()
    for event in events:
        kind = event.WhichOneof("payload")
        if kind in _SKIPPED or (kind == "warning" and event.warning.reason in _RECOVERY):
            continue
        facts = _message(event, session)
        if kind == "assignment_changed":
            # Its states of progress come again with each attempt.
            if event.assignment_changed.state in (v1.ASSIGNMENT_STATE_PENDING, v1.ASSIGNMENT_STATE_RUNNING):
                continue
            for name in ("failures", "run"):
                facts["assignment_changed"].pop(name, None)
        if kind == "agent_replied":
            for name in ("cost", "session_cost"):
                facts["agent_replied"].pop(name, None)
        text = json.dumps(facts, sort_keys=True)
        if kind == "warning":
            if text in once:
                continue
            once.add(text)
        yield text


def _message(message: Any, session: str) -> Any:
    return _clean(MessageToDict(message, preserving_proto_field_name=True), session)


def _clean(value: Any, session: str) -> Any:
    if isinstance(value, dict):
        return {
            str(_clean(name, session)): _clean(entry, session) for name, entry in value.items() if not _volatile(name)
        }
    if isinstance(value, list):
        return [_clean(entry, session) for entry in value]
    return value.replace(session, "SESSION") if isinstance(value, str) else value


def _volatile(name: str) -> bool:
    return bool(_VOLATILE.search(name) or _RACING.search(name))


def _text(key: str, data: bytes, session: str) -> str:
    """Return the values of JSON, one line for each row, without times and the session's name."""
    documents = data.splitlines() if key.endswith(".jsonl") else [data]
    return "\n".join(json.dumps(_clean(json.loads(line), session), sort_keys=True) for line in documents)


def _first_difference(calm: str, rough: str) -> str:
    """Return the places of two texts at which they begin to differ."""
    same = next((i for i, (a, b) in enumerate(zip(calm, rough, strict=False)) if a != b), min(len(calm), len(rough)))
    begin = max(0, same - _BEFORE)
    return f"at {same}: ...{rough[begin : same + _AFTER]!r}, not ...{calm[begin : same + _AFTER]!r}"


def _content(key: str, data: bytes, session: str) -> str:
    """Return a hash of the content of a file, without times and the session's name."""
    if key.endswith(".npz"):
        with np.load(io.BytesIO(data)) as arrays:
            parts = [
                (name, str(arrays[name].dtype), arrays[name].shape, arrays[name].tobytes()) for name in arrays.files
            ]
        return _digest(
            repr([(a, b, c, _digest(d.replace(session.encode(), b"SESSION"))) for a, b, c, d in parts]).encode()
        )
    return _digest(data.replace(session.encode(), b"SESSION"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
