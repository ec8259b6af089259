"""What people direct while a session runs: notes, criteria, a proposal or a parent for the next iteration, an approval."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.database.directions import APPROVE, CRITERIA, PROPOSAL, REBASE
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.models import USER


@dataclass(frozen=True)
class Directions:
    """What a person directed for an iteration.

    :param proposal: a text to evaluate instead of a revision; empty: none.
    :param rebase: number of the iteration to start from; 0: the reviser's choice.
    """

    notes: tuple[str, ...] = ()
    proposal: str = ""
    rebase: int = 0


def take(context: SessionContext, number: int) -> Directions:
    """The directions for an iteration; criteria among them are the session's from now on.

    A step of its own: were a note given between a crash and the repetition of a conversation, the reviser would be asked
    otherwise, and could not be answered from the journal.
    """
    store = context.store

    def look() -> Json:
        notes = store.take_notes(number) if number > 1 else []
        if notes:
            store.update_iteration(number, v1.Iteration(notes=notes), ["notes"])
        directed = store.take_directions(number, (PROPOSAL, CRITERIA, REBASE))
        if CRITERIA in directed:
            store.set_criteria(number, directed[CRITERIA])
        if PROPOSAL in directed:
            _mark_written(context, number)
        return {"notes": notes, "proposal": directed.get(PROPOSAL, ""), "rebase": int(directed.get(REBASE, "0"))}

    directed = context.step(f"notes:{number}", look)
    context.refresh()
    return Directions(tuple(directed["notes"]), directed["proposal"], directed["rebase"])


def _request(context: SessionContext, number: int, tag: str) -> float:
    context.call(context.engine.controller.release(context.session))
    return context.store.request_approval(number, key=f"approval/{tag}")


def _mark_written(context: SessionContext, number: int) -> None:
    """Record that the iteration's proposal is a person's."""
    context.store.mark_edited(number, "proposal")
    context.store.update_iteration(number, v1.Iteration(author=USER), ["author"])


def await_approval(context: SessionContext, number: int, *, text: str, version: str) -> str | None:
    """Waits, for days if need be, until a person approves the proposal; None once it is approved.

    The trainer's lease is given back meanwhile.

    :param text: the proposal.
    :return: the text that a person put in its place.
    """
    store, tag = context.store, f"{number}:{version}"
    context.step(f"phase:{number}:PHASE_APPROVE:{version}", lambda: store.enter_phase(number, v1.PHASE_APPROVE))
    since = context.step(f"approval:{tag}", lambda: _request(context, number, tag))

    def look() -> Json:
        # What this iteration took before is among them, so that a look that is repeated after a crash sees the same.
        directed = store.take_directions(number, (PROPOSAL, APPROVE))
        given = directed.get(PROPOSAL, "")
        if given and given != text:
            store.end_approval(number, since=since, key=f"edited/{tag}", note=None)
            _mark_written(context, number)
            return {"approved": False, "text": given}
        if APPROVE not in directed:
            return {"approved": False, "text": ""}
        store.end_approval(number, since=since, key=f"approved/{tag}", note=directed[APPROVE])
        return {"approved": True, "text": ""}

    looks = 0
    while True:
        looks += 1
        seen = context.step(f"approval-look:{tag}:{looks}", look)
        if seen["approved"]:
            return None
        if seen["text"]:
            return str(seen["text"])
        context.wait(context.engine.settings.approval_seconds)
