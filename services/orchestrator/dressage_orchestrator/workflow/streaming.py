"""Judging checkpoints while their training goes on.

The session's workflow, waiting for its training, starts a child workflow for what was evaluated since the last look: one child
at a time, so that judging never takes more than one place beside the training, and what arrives meanwhile is the next child's.
A child judges by code alone; video is for what decides, at the end. A checkpoint that cannot be judged is told in a warning:
the last one, which decides, is judged by the session itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import names
from dressage_orchestrator.database import effects, runs
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.workflow import aggregate
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.outcome import Cancelled
from dressage_orchestrator.workflow.signs import checkpoint_score, is_judged

CHECKPOINTS = "checkpoints"
"""Kind of the child workflow."""

_MAX_CHECKPOINTS = 16


class Arrivals:
    """What the waiting workflow knows of its training's checkpoints; rebuilt from recorded looks.

    :param judge_source: for the children.
    """

    def __init__(self, flow: Flow, number: int, run: str, judge_source: str) -> None:
        self._flow = flow
        self._number = number
        self._run = run
        self._source = judge_source
        self._begun: set[tuple[str, int]] = set()
        self._batches = 0
        self._open = ""

    def look(self, tx: Transaction) -> Json:
        """What a look records: checkpoints that were evaluated, and whether the child under way has ended. In a step."""
        done = not self._open or effects.known(tx, self._flow.session, self._effect(self._open))
        found = evaluated(runs.members(tx, self._run))
        fresh = [entry for entry in found if entry not in self._begun]
        return {"fresh": [list(entry) for entry in fresh[:_MAX_CHECKPOINTS]], "done": done}

    def advance(self, seen: Json) -> bool:
        """Starts a child where there is something to judge; whether all that was seen is judged."""
        if not seen["done"]:
            return False
        self._open = ""
        if not seen["fresh"]:
            return True
        self._batches += 1
        ident = f"judge-{self._number}-{names.parse_run(self._run).run}-{self._batches}"
        self._begun |= {(member, step) for member, step in seen["fresh"]}
        batch = {
            "id": ident,
            "number": self._number,
            "run": self._run,
            "judge": self._source,
            "checkpoints": seen["fresh"],
        }
        self._open = ident
        self._flow.child(CHECKPOINTS, ident, batch)
        return False

    def _effect(self, ident: str) -> str:
        return f"{self._flow.epoch}/{ident}"


def evaluated(members: Sequence[v1.Member]) -> list[tuple[str, int]]:
    """Checkpoints that are neither judged nor the last ones, in order of steps: (member id, env step)."""
    found = [
        (member.name.rpartition("/")[2], entry.env_step)
        for member in members
        for entry in member.evaluations
        if entry.rollouts and entry.env_step < member.target_env_steps and checkpoint_score(entry) is None
    ]
    return sorted(found, key=lambda entry: (entry[1], entry[0]))


def judge_batch(flow: Flow, batch: Json) -> None:
    """The child workflow's work: judges a batch of checkpoints and stores the verdicts."""
    ident, number = batch["id"], batch["number"]

    def judge() -> None:
        with flow.engine.database.begin() as tx:
            members = {m.name.rpartition("/")[2]: m for m in runs.members(tx, batch["run"])}
        wanted = {(member, step): _rollouts(members, member, step) for member, step in batch["checkpoints"]}
        keys = [key for group in wanted.values() for key in group]
        try:
            verdicts = _ask(flow, keys, batch["judge"]) if keys else {}
        except DressageError as error:
            _give_up(flow, batch, error)
            return
        with flow.engine.database.begin() as tx:
            first = flow.once(tx, ident)
            for member, step in wanted:
                judgment = _store(tx, flow, batch["run"], member, step, verdicts)
                if first and judgment is not None:
                    subject = names.member_name(batch["run"], member)
                    told = ev.Judged(subject=subject, judgment=judgment, env_step=step)
                    flow.emit(tx, ev.Event(judged=told), iteration=number)

    try:
        flow.step(f"checkpoints:{ident}", judge)
    except Cancelled:
        flow.log.info("checkpoints are left unjudged: the session is cancelled", batch=ident)


def _rollouts(members: Mapping[str, v1.Member], member: str, step: int) -> list[str]:
    if member not in members:
        return []
    return [r.artifact for e in members[member].evaluations if e.env_step == step for r in e.rollouts]


def _ask(flow: Flow, rollouts: Sequence[str], source: str) -> dict[str, v1.Judgment]:
    request = judge_pb.JudgeRequest(environment=flow.environment, rollouts=rollouts, judge_source=source)
    request.pass_threshold = flow.spec.pass_threshold
    answer = flow.call(flow.engine.judge.judge(request))
    return {entry.rollout: entry.judgment for entry in answer.rollouts}


def _store(
    tx: Transaction, flow: Flow, run: str, member: str, step: int, verdicts: Mapping[str, v1.Judgment]
) -> v1.Judgment | None:
    """Writes a checkpoint's verdicts into its member; the checkpoint's judgment."""
    pooled: list[v1.Judgment] = []

    def keep(entry: v1.Member) -> None:
        for evaluation in entry.evaluations:
            if evaluation.env_step == step:
                aggregate.keep_verdicts(evaluation, verdicts)
                judged = [r.judgment for r in evaluation.rollouts if is_judged(r)]
                if judged:
                    pooled.append(aggregate.pooled(judged, threshold=flow.spec.pass_threshold))

    runs.change_member(tx, run, member, keep)
    return pooled[0] if pooled else None


def _give_up(flow: Flow, batch: Json, error: DressageError) -> None:
    with flow.engine.database.begin() as tx:
        if flow.once(tx, batch["id"]):
            message = f"checkpoints could not be judged while training goes on: {error.message}"
            warning = ev.Warning(reason="CHECKPOINTS_NOT_JUDGED", message=message)
            flow.emit(tx, ev.Event(warning=warning), iteration=batch["number"])
