"""Directions of people during a session: notes, criteria, a proposal or a parent for the next iteration, approvals."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.database.feedback import APPROVE, CRITERIA, FROM_PARENT, PROPOSAL, REBASE
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.models import USER


@dataclass(frozen=True)
class Directions:
    """Directions of a person for an iteration.

    :param proposal: a proposal to evaluate instead of a revision; empty: none.
    :param rebase: number of the iteration to start from; 0: the reviser chooses.
    :param from_parent: whether to continue from the parent's policies, a `FromParent`; 0: as the session's settings say.
    """

    notes: tuple[str, ...] = ()
    proposal: str = ""
    rebase: int = 0
    from_parent: int = 0


def take(context: SessionContext, number: int) -> Directions:
    """Take the directions for an iteration; new criteria become the session's.

    This is a separate step: a note that arrives between a crash and the repetition of a conversation would change the request,
    which could then not be answered from the journal.
    """
    store = context.store

    def read() -> Json:
        # Notes are for a reviser; the first iteration has none and must not use them up.
        notes = store.take_notes(number) if number > 1 else []
        if notes:
            store.update_iteration(number, v1.Iteration(notes=notes), ["notes"])
        directed = store.take_directions(number, (PROPOSAL, CRITERIA, REBASE, FROM_PARENT))
        if CRITERIA in directed:
            store.set_criteria(number, directed[CRITERIA])
        if PROPOSAL in directed:
            _mark_written(context, number)
        return {
            "notes": notes,
            "proposal": directed.get(PROPOSAL, ""),
            "rebase": int(directed.get(REBASE, "0")),
            "from_parent": int(directed.get(FROM_PARENT, "0")),
        }

    directed = context.step(f"notes:{number}", read)
    context.refresh()
    return Directions(tuple(directed["notes"]), directed["proposal"], directed["rebase"], directed["from_parent"])


def _request(context: SessionContext, number: int, tag: str) -> float:
    context.call(context.engine.controller.release(context.session))
    return context.store.request_approval(number, key=f"approval/{tag}")


def _mark_written(context: SessionContext, number: int) -> None:
    """Record that a person wrote the iteration's proposal."""
    context.store.mark_edited(number, "proposal")
    context.store.update_iteration(number, v1.Iteration(author=USER), ["author"])


def await_approval(context: SessionContext, number: int, *, text: str, version: str) -> str | None:
    """Wait without a time limit until a person approves or replaces the proposal. The trainer's lease is released meanwhile.

    :param text: the proposal.
    :return: the replacement; None if the proposal is approved.
    """
    store, tag = context.store, f"{number}:{version}"
    context.step(f"phase:{number}:PHASE_APPROVE:{version}", lambda: store.enter_phase(number, v1.PHASE_APPROVE))
    since = context.step(f"approval:{tag}", lambda: _request(context, number, tag))

    def poll() -> Json:
        # Includes directions that this iteration took before, so that a poll repeated after a crash returns the same.
        directed = store.take_directions(number, (PROPOSAL, APPROVE))
        replacement = directed.get(PROPOSAL, "")
        if replacement and replacement != text:
            store.end_approval(number, since=since, key=f"edited/{tag}", note=None)
            _mark_written(context, number)
            return {"approved": False, "text": replacement}
        if APPROVE not in directed:
            return {"approved": False, "text": ""}
        store.end_approval(number, since=since, key=f"approved/{tag}", note=directed[APPROVE])
        return {"approved": True, "text": ""}

    polls = 0
    while True:
        polls += 1
        result = context.step(f"approval-poll:{tag}:{polls}", poll)
        if result["approved"]:
            return None
        if result["text"]:
            return str(result["text"])
        context.wait(context.engine.settings.approval_seconds)
