"""What people say while a session runs: directions for the next iteration, and approval of a proposal before it is trained."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from google.protobuf.json_format import ParseDict

from dressage_orchestrator import names
from dressage_orchestrator.database import directions, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.methods.authoring import USER, Code
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.judging import enter


@dataclass(frozen=True)
class Directions:
    """What an iteration was told.

    :param reward: a source to train instead of a revision; empty: none.
    :param rebase: number of the iteration to start from; 0: the reviser's choice.
    """

    notes: tuple[str, ...] = ()
    reward: str = ""
    rebase: int = 0


def take(flow: Flow, number: int) -> Directions:
    """The directions for an iteration; criteria among them are the session's from now on.

    A step of its own: were a note given between a crash and the repetition of a conversation, the reviser would be asked
    otherwise, and could not be answered from the journal.
    """

    def look() -> Json:
        with flow.engine.database.begin() as tx:
            notes = sessions.take_notes(tx, flow.session, number) if number > 1 else []
            if not flow.complete:
                return {"notes": notes}
            kinds = (directions.REWARD, directions.CRITERIA, directions.REBASE)
            told = directions.take(tx, flow.session, number, kinds)
            if directions.CRITERIA in told:
                _set_criteria(flow, tx, number, told[directions.CRITERIA])
            if directions.REWARD in told:
                mark_edited(flow, tx, number)
        rebase = int(told.get(directions.REBASE, "0"))
        return {"notes": notes, "reward": told.get(directions.REWARD, ""), "rebase": rebase}

    told = flow.step(f"notes:{number}", look)
    flow.refresh()
    return Directions(tuple(told["notes"]), told.get("reward", ""), told.get("rebase", 0))


def _set_criteria(flow: Flow, tx: Transaction, number: int, text: str) -> None:
    criteria = [ParseDict(entry, v1.IntentCriterion()) for entry in json.loads(text)]

    def keep(session: v1.Session) -> None:
        del session.spec.criteria[:]
        session.spec.criteria.extend(criteria)

    def mark(iteration: v1.Iteration) -> None:
        if "criteria" not in iteration.edited:
            iteration.edited.append("criteria")

    flow.edit(tx, keep)
    sessions.put_iteration(tx, flow.session, number, mark)


def await_approval(flow: Flow, number: int, reward: Code) -> Code | None:
    """Waits, for days if need be, until a person approves the proposal; None once it is approved.

    :return: another reward that a person put in its place, to be checked before it waits again.
    """
    enter(flow, number, v1.PHASE_APPROVE)
    tag = f"{number}:{reward.version}"
    asked = flow.step(f"approval:{tag}", lambda: _ask(flow, number, tag))
    looks = 0
    while True:
        looks += 1
        seen = flow.step(f"approval-look:{tag}:{looks}", lambda: _look(flow, number, reward, asked))
        if seen["approved"] or seen["reward"]:
            break
        flow.receive(flow.engine.settings.approval_seconds)
    if not seen["reward"]:
        return None
    return replace(Code(seen["reward"], USER), edits=reward.edits + 1)


def _ask(flow: Flow, number: int, tag: str) -> float:
    """Says that the proposal waits; the moment, in seconds since the epoch."""

    def show(session: v1.Session) -> None:
        session.awaiting_approval = number

    with flow.engine.database.begin() as tx:
        flow.edit(tx, show)
        if flow.once(tx, f"approval/{tag}"):
            told = ev.ApprovalRequested(iteration=names.iteration_name(flow.session, number))
            flow.emit(tx, ev.Event(approval_requested=told), iteration=number)
        return tx.now.timestamp()


def _look(flow: Flow, number: int, reward: Code, asked: float) -> Json:
    """Whether a person put another reward in the proposal's place, or else approved it."""
    with flow.engine.database.begin() as tx:
        # What this iteration took before is among them, so that a look that is repeated after a crash sees the same.
        told = directions.take(tx, flow.session, number, (directions.REWARD, directions.APPROVE))
        given = told.get(directions.REWARD, "")
        if given and given != reward.source:
            _resume(flow, tx, number, asked, f"edited/{number}:{reward.version}")
            mark_edited(flow, tx, number)
            return {"approved": False, "reward": given}
        if directions.APPROVE not in told:
            return {"approved": False, "reward": ""}
        if _resume(flow, tx, number, asked, f"approved/{number}:{reward.version}"):
            _tell_approval(flow, tx, number, told[directions.APPROVE])
    return {"approved": True, "reward": ""}


def _resume(flow: Flow, tx: Transaction, number: int, asked: float, effect: str) -> bool:
    """The session waits no longer, and how long it did is kept; whether that is news."""
    if not flow.once(tx, effect):
        return False
    waited = max(0.0, tx.now.timestamp() - asked)

    def keep(session: v1.Session) -> None:
        session.awaiting_approval = 0
        session.waited_seconds += waited

    flow.edit(tx, keep)
    return True


def _tell_approval(flow: Flow, tx: Transaction, number: int, note: str) -> None:
    def remark(iteration: v1.Iteration) -> None:
        if note:
            iteration.notes.append(note)

    iteration = sessions.put_iteration(tx, flow.session, number, remark)
    told = ev.ApprovalGiven(iteration=iteration.name, note=note)
    flow.emit(tx, ev.Event(approval_given=told), iteration=number)


def mark_edited(flow: Flow, tx: Transaction, number: int) -> None:
    """The iteration's reward is a person's."""

    def mark(iteration: v1.Iteration) -> None:
        if "proposal" not in iteration.edited:
            iteration.edited.append("proposal")

    sessions.put_iteration(tx, flow.session, number, mark)
