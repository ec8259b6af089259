"""What lists return of sessions and benchmarks: no sources and no other field whose size the owner or generated code chooses.

Summaries are columns of their own, so that a list does not read what it leaves out.
"""

from __future__ import annotations

from dressage.api.v1 import benchmark_service_pb2 as benchmark_pb
from dressage.api.v1 import session_pb2 as v1

_CASE = ("environment", "session", "session_id", "state", "method", "run", "stage")
_JUDGMENT = ("score", "passed", "interval_low", "interval_high")


def of_session(session: v1.Session) -> bytes:
    """Return the summary of a session as bytes."""
    short = v1.Session()
    short.CopyFrom(session)
    _shorten_spec(short.spec)
    if short.HasField("report"):
        for field in ("returns", "lengths", "successes"):
            short.report.ClearField(field)
    for judgment in ("best_judgment", "confirmation"):
        if session.HasField(judgment):
            whole = getattr(session, judgment)
            getattr(short, judgment).CopyFrom(v1.Judgment(**{name: getattr(whole, name) for name in _JUDGMENT}))
    return short.SerializeToString(deterministic=True)


def of_benchmark(benchmark: benchmark_pb.Benchmark) -> bytes:
    """Return the summary of a benchmark as bytes."""
    short = benchmark_pb.Benchmark()
    for field, value in benchmark.ListFields():
        if field.message_type is None:
            setattr(short, field.name, value)
    for name in ("template", "create_time", "end_time"):
        if benchmark.HasField(name):
            getattr(short, name).CopyFrom(getattr(benchmark, name))
    if short.HasField("template"):
        _shorten_spec(short.template)
    for case in benchmark.cases:
        entry = short.cases.add(**{name: getattr(case, name) for name in _CASE})
        if case.HasField("score"):
            entry.score = case.score
    short.groups.extend(group for group in benchmark.groups if group.kind == "all")
    return short.SerializeToString(deterministic=True)


def _shorten_spec(spec: v1.SessionSpec) -> None:
    for name in ("judge_source", "criteria", "roles"):
        spec.ClearField(name)
    match spec.WhichOneof("method_spec"):
        case "reward":
            spec.reward.ClearField("reward_source")
            spec.reward.ClearField("configs")
        case "code":
            spec.code.ClearField("policy_source")
        case "custom":
            spec.custom.ClearField("value")
