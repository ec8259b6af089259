"""Which cases of a benchmark run, in stages, and its table. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.serving.costs import add_cost
from dressage.statistics import mean, wilson

from dressage_orchestrator.database.sessions import ENDED

MAX_STAGES = 25
DEFAULT_GATE = 0.7


class CaseSource(Protocol):
    """Where the cases of a benchmark come from.

    A source that samples cases adds them to the benchmark when it is asked; the results so far are in the benchmark's cases.
    """

    def ask(self, benchmark: pb.Benchmark) -> list[pb.BenchmarkCase]:
        """Return the cases to run now, the first ones first; without any, the benchmark ends.

        It is asked whenever a case has changed, and may set the benchmark's stage and the reason of its end.
        """


class StagedCases:
    """The cases of the request, stage by stage."""

    def ask(self, benchmark: pb.Benchmark) -> list[pb.BenchmarkCase]:
        """Return the cases of the current stage, or of the next one if it is over and the score reaches the gate."""
        cases = [case for case in benchmark.cases if case.state not in ENDED]
        if benchmark.cancelled:
            benchmark.stopped_reason = "cancelled"
            return [case for case in cases if case.session and case.state]  # one without a state waits to be continued
        stage = min((case.stage for case in cases), default=benchmark.stage)
        if benchmark.staged and stage > benchmark.stage > 0 and (score := gate_score(benchmark)) < benchmark.stage_gate:
            reason = f"the mean score {score:.2f} is below the gate of {benchmark.stage_gate:g}"
            benchmark.stopped_reason = f"stage {benchmark.stage}: {reason}"
            return []
        benchmark.stage = stage
        return [case for case in cases if case.stage == stage]


def can_continue(session: v1.Session, spec: v1.SessionSpec) -> bool:
    """Return whether a session that ended continues: it failed, or the limit at which it ended is larger in the spec."""
    if session.state in (v1.SESSION_STATE_FAILED, v1.SESSION_STATE_CANCELLED):
        return True
    if session.state != v1.SESSION_STATE_EXHAUSTED:
        return False
    old, new = session.spec.budget, spec.budget
    match session.exhaustion_reason:
        case v1.EXHAUSTION_REASON_DOLLARS:
            return new.dollars > old.dollars
        case v1.EXHAUSTION_REASON_TOKENS:
            return new.tokens > old.tokens
        case v1.EXHAUSTION_REASON_ENV_STEPS:
            return new.env_steps > old.env_steps
        case v1.EXHAUSTION_REASON_WALL_TIME:
            return new.wall_time.ToTimedelta() > old.wall_time.ToTimedelta()
    return spec.max_iterations > session.spec.max_iterations


def stages(cases: Sequence[pb.BenchmarkCase], *, parallel: int) -> list[int]:
    """Assign each case to a stage, from 1, with at least ``parallel`` cases in each stage.

    One case of each environment and difficulty is taken in turn, so that an early stage is a sample of all cases and its gate
    is meaningful.
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for place, case in enumerate(cases):
        kinds.setdefault((case.difficulty, case.environment), []).append(place)
    order: list[int] = []
    queues = [list(kinds[kind]) for kind in sorted(kinds)]
    while queues:
        order += [queue.pop(0) for queue in queues]
        queues = [queue for queue in queues if queue]
    size = max(parallel, math.ceil(len(cases) / MAX_STAGES))
    assigned = [0] * len(cases)
    for rank, place in enumerate(order):
        assigned[place] = rank // size + 1
    return assigned


def gate_score(benchmark: pb.Benchmark) -> float:
    """Mean score of the ended cases; a case without a score counts as 0."""
    return mean([case.score for case in benchmark.cases if case.state in ENDED])


def environment_label(case: pb.BenchmarkCase) -> str:
    """Name of the case's environment in tables."""
    return case.environment_label or case.environment.removeprefix("environments/")


def fill_groups(benchmark: pb.Benchmark) -> None:
    """Write the table into the benchmark."""
    del benchmark.groups[:]
    kinds: list[tuple[str, Callable[[pb.BenchmarkCase], str]]] = [
        ("all", lambda case: "all"),
        ("environment", environment_label),
        ("method", lambda case: case.method),
        ("category", lambda case: case.category),
        ("difficulty", lambda case: case.difficulty),
        ("stage", lambda case: str(case.stage) if case.stage else ""),
    ]
    for kind, value_of in kinds:
        parts: dict[str, list[pb.BenchmarkCase]] = {}
        for case in benchmark.cases:
            if value_of(case):
                parts.setdefault(value_of(case), []).append(case)
        ordered = sorted(parts, key=lambda value: (0, int(value), "") if value.isdecimal() else (1, 0, value))
        benchmark.groups.extend(_group(kind, value, parts[value]) for value in ordered)


def _group(kind: str, value: str, cases: Sequence[pb.BenchmarkCase]) -> pb.BenchmarkGroup:
    ended = [case for case in cases if case.state in ENDED]
    passed = [case for case in ended if case.state == v1.SESSION_STATE_SUCCEEDED]
    group = pb.BenchmarkGroup(kind=kind, value=value, total=len(cases), completed=len(ended), passed=len(passed))
    if ended:
        share = wilson(len(passed), len(ended))
        group.success_rate, group.success_low, group.success_high = share.value, share.low, share.high
        group.mean_score = mean([case.score for case in ended])
    if passed:
        group.iterations_to_pass = mean([case.iterations for case in passed])
    for case in cases:
        add_cost(group.cost, case.cost)
        group.env_steps += case.env_steps
    return group
