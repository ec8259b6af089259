"""The result of a cell as one JSON line, and the folder of an experiment's results.

`results.jsonl` has a line for each cell that ended. Of several lines of a cell the last one counts. A line that a kill cut off
is ignored, and the next one begins on a line of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dressage.api.v1 import benchmark_service_pb2
from dressage.api.v1 import session_pb2 as pb
from dressage.artifacts import atomic
from dressage.errors import InvalidArgument
from dressage.sdk import curves, methods
from dressage.sdk.progress import target as target_of
from dressage.sdk.scores import SearchPoint
from dressage.sdk.texts import seconds_worked

RESULTS = "results.jsonl"
ORDER = "order.json"
SEARCH_LIMITS = {"episodes": "episode_budget", "programs": "budget"}
"""Limits that are settings of search methods: the name in the file → the setting. A session keeps those of its creation."""
_MAX_POINTS = 400


@dataclass(frozen=True)
class Record:
    """The result of one cell. Returns are undiscounted and in the unit of the environment."""

    cell: str
    """Id of the session."""
    experiment: str
    environment: str
    """Name in the experiment."""
    method: str
    """Name of the method in the experiment."""
    run: int
    seed: int
    state: str
    reason: str
    """Why the session ended, if it did not succeed."""
    score: float | None
    """Mean return on report seeds. For methods without a report the score on fresh seeds or, without one, that of the best
    iteration."""
    score_interval: tuple[float, float] | None
    report_returns: list[float]
    target: float | None
    best: float | None
    """Highest score of a candidate on search seeds."""
    mean_winner: float | None
    """Mean over iterations of the score of the chosen candidate; None for searches by the trainer."""
    last_winner: float | None
    episodes: int
    candidates: int
    cache_hits: int
    env_steps: int
    input_tokens: int
    output_tokens: int
    requests: int
    dollars: float | None
    """None if the price of the model is unknown."""
    seconds: float | None
    """Between start and end of the session; includes the waiting time for trainers that other cells use."""
    curve: list[tuple[int, int, float, float]]
    """Episodes, tokens, score and best score so far, after each iteration or improvement."""
    settings: dict[str, Any]
    """Method, its settings with defaults, and the model."""
    limits: dict[str, Any]
    exhausted_limit: str
    """Name of the limit at which the session ended; empty if it succeeded or failed."""
    score_range: tuple[float, float] | None
    machine: dict[str, Any]
    end_time: str
    intent: str = ""
    environment_id: str = ""
    """Id of the environment; `environment` is its name in the experiment."""
    confirmed: float | None = None
    """Score on fresh seeds; only of methods that confirm their policy."""

    @property
    def ended_well(self) -> bool:
        """Whether the session ended as succeeded or exhausted."""
        return self.state in ("succeeded", "exhausted")

    def is_final(self, limits: Mapping[str, Any]) -> bool:
        """Return whether the result stands under these limits: it succeeded, or the limit at which it ended is not larger."""
        name = self.exhausted_limit
        larger = name in self.limits and limits.get(name, 0) > self.limits[name]
        return self.ended_well and (self.state == "succeeded" or not larger)


def record_of(
    case: benchmark_service_pb2.BenchmarkCase,
    session: pb.Session,
    iterations: Sequence[pb.Iteration],
    *,
    experiment: str,
    machine: Mapping[str, Any],
) -> Record:
    """Return the result of a session that has ended.

    :param machine: where the session ran.
    """
    report = session.report if session.HasField("report") else None
    points = curves.points(iterations)
    winners = curves.winner_scores(iterations)
    cost = session.cost
    judgment = session.confirmation if session.HasField("confirmation") else session.best_judgment
    confirmed = session.confirmation.score if session.HasField("confirmation") else None
    score, interval = confirmed, (judgment.interval_low, judgment.interval_high) if judgment.samples else None
    if report is not None:
        score, interval = report.mean, (report.interval_low, report.interval_high)
    elif score is None and session.HasField("best_score"):
        score = session.best_score
    return Record(
        cell=case.session_id,
        experiment=experiment,
        environment=environment_label(case),
        method=case.method or methods.method_of(session.spec),
        run=case.run,
        seed=session.spec.seed,
        state=pb.SessionState.Name(session.state).removeprefix("SESSION_STATE_").lower(),
        reason=session.failure.message or session.state_reason,
        score=score,
        score_interval=interval,
        report_returns=[] if report is None else list(report.returns),
        target=target_of(session),
        best=points[-1].best if points else None,
        mean_winner=sum(winners) / len(winners) if winners else None,
        last_winner=winners[-1] if winners else None,
        episodes=session.episodes,
        candidates=session.candidates,
        cache_hits=session.cache_hits,
        env_steps=session.env_steps,
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        requests=cost.requests,
        dollars=_dollars(cost),
        seconds=seconds_worked(session),
        curve=[(point.episodes, point.tokens, point.score, point.best) for point in _thin(points)],
        settings=_settings(session.spec),
        limits=limits_of(session.spec),
        exhausted_limit=exhausted_limit(session),
        score_range=(case.score_range[0], case.score_range[1]) if len(case.score_range) == 2 else None,
        machine=dict(machine),
        end_time=session.end_time.ToJsonString() if session.HasField("end_time") else "",
        intent=session.spec.intent,
        environment_id=session.spec.environment.partition("/")[2],
        confirmed=confirmed,
    )


def environment_label(case: benchmark_service_pb2.BenchmarkCase) -> str:
    """Return the name of a case's environment in results."""
    return case.environment_label or case.environment.removeprefix("environments/")


def limits_of(spec: pb.SessionSpec) -> dict[str, Any]:
    """Return the limits of a spec by their names in the file; those that are not set are left out."""
    settings = methods.settings_of(spec)
    budget = spec.budget
    limits = {
        "iterations": spec.max_iterations,
        "dollars": budget.dollars if budget.HasField("dollars") else None,
        "tokens": budget.tokens,
        "env_steps": budget.env_steps,
        "minutes": budget.wall_time.ToSeconds() / 60 if budget.HasField("wall_time") else None,
        **{name: getattr(settings, setting, 0) for name, setting in SEARCH_LIMITS.items()},
    }
    return {
        name: value for name, value in limits.items() if value not in (None, 0) or (name == "dollars" and value == 0)
    }


_LIMITS = {
    pb.EXHAUSTION_REASON_DOLLARS: "dollars",
    pb.EXHAUSTION_REASON_TOKENS: "tokens",
    pb.EXHAUSTION_REASON_ENV_STEPS: "env_steps",
    pb.EXHAUSTION_REASON_WALL_TIME: "minutes",
}


def exhausted_limit(session: pb.Session) -> str:
    """Return the name of the limit at which a session ended; empty if none did."""
    if session.state != pb.SESSION_STATE_EXHAUSTED:
        return ""
    return _LIMITS.get(session.exhaustion_reason, "iterations")


def _dollars(cost: pb.Cost) -> float | None:
    if not cost.requests:
        return 0.0
    return cost.dollars if cost.HasField("dollars") else None


def _settings(spec: pb.SessionSpec) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    message = methods.settings_of(spec)
    values = {} if message is None else MessageToDict(message, preserving_proto_field_name=True)
    return {"method": methods.method_of(spec), "model": spec.model, **values}


def _thin(points: Sequence[SearchPoint]) -> list[SearchPoint]:
    """Return at most `_MAX_POINTS` points: the last one, and evenly spaced others."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (_MAX_POINTS - 1))] for index in range(_MAX_POINTS)]


class ResultFolder:
    """The folder with the results of an experiment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Record) -> None:
        """Store the result of a cell; an earlier one is replaced.

        :raises OSError: if the folder cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        _append(self.path / RESULTS, asdict(record))

    def set_order(self, environments: Sequence[str], methods: Sequence[str]) -> None:
        """Store the order of the experiment's environments and methods, in which `records` returns the results.

        :raises OSError: if the folder cannot be written.
        """
        content = {"environments": list(dict.fromkeys(environments)), "methods": list(dict.fromkeys(methods))}
        atomic.write_bytes(self.path / ORDER, json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")

    def records(self) -> list[Record]:
        """Return the results in the order of the experiment; without a stored order, in that of their first lines.

        :raises InvalidArgument: naming the file and the line that is no result.
        """
        path = self.path / RESULTS
        records: dict[str, Record] = {}
        for number, line in _lines(path):
            record = _record(line, f"{path}, line {number}")
            records[record.cell] = record
        environments, methods = self._order()
        last = len(environments), len(methods)
        return sorted(
            records.values(),
            key=lambda entry: (environments.get(entry.environment, last[0]), methods.get(entry.method, last[1])),
        )

    def _order(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the stored places of environments and methods; empty if there is no such file, or a damaged one."""
        try:
            content = json.loads((self.path / ORDER).read_text("utf-8"))
            environments, methods = content["environments"], content["methods"]
            return {str(name): n for n, name in enumerate(environments)}, {
                str(name): n for n, name in enumerate(methods)
            }
        except (OSError, ValueError, LookupError, TypeError):
            return {}, {}


def _append(path: Path, content: Mapping[str, Any]) -> None:
    """Append a line and wait until it is on the disk, because a later run does not repeat its cell."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a kill cut off the last line
                file.write(b"\n")
        file.write(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path) -> Iterable[tuple[int, Any]]:
    """Return the objects of a file of JSON lines with their numbers; lines that are not JSON are left out."""
    if not path.is_file():
        return
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1):
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict):
            yield number, content


def _record(line: Mapping[str, Any], place: str) -> Record:
    names = {field.name for field in fields(Record)}
    missing = sorted({field.name for field in fields(Record) if field.default is MISSING} - set(line))
    if missing:
        expected = f"a result with the field {missing[0]!r}"
        raise InvalidArgument(field=place, problem="not a result of `dressage bench`", expected=expected)
    values = {name: value for name, value in line.items() if name in names}
    for name in ("score_interval", "score_range"):
        if values[name] is not None:
            values[name] = (float(values[name][0]), float(values[name][1]))
    values["curve"] = [(int(e), int(t), float(s), float(b)) for e, t, s, b in values["curve"]]
    return Record(**values)
