"""The store of a session's workflow, which hides rows and transactions.

Each method is one transaction and may be repeated: effects that must not be repeated (events, costs) are recorded under a
key, once in an epoch (see `idempotency`). Reads use read-only transactions, which do not block writers. While the database
is unavailable (a full disk, a lock, an outage), a method retries until the server stops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.serving.costs import add_cost
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import assignments, events, feedback, idempotency, sessions
from dressage_orchestrator.database.assignment_store import AssignmentStore
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.feedback import Label

RECONCILED = "reconciled"
"""Key of an epoch that `reconcile` started, because the workflow of the previous epoch ended before its session."""
_MAX_LABELS = 200


@dataclass(frozen=True)
class Ending:
    """End of a session.

    :param message: why, as text.
    :param uncounted: cost that was not counted yet; it is counted for the role ``recovered``.
    :param uncounted_of_iterations: the same of iterations, by number.
    :param warning: warning about the uncounted cost.
    """

    state: v1.SessionState.ValueType
    message: str = ""
    exhaustion: v1.ExhaustionReason.ValueType = v1.EXHAUSTION_REASON_UNSPECIFIED
    failure: v1.Failure | None = None
    uncounted: v1.Cost | None = None
    uncounted_of_iterations: Mapping[int, v1.Cost] = field(default_factory=dict)
    warning: ev.Warning | None = None


class SessionStore(AssignmentStore):
    """Rows of one session in one epoch."""

    # Reading.

    def now(self) -> datetime:
        """Current time, UTC."""
        return self._database.clock()

    def get(self) -> v1.Session:
        """Read the session."""
        return self._read(lambda tx: sessions.get(tx, self.session))

    def cancel_reason(self) -> str | None:
        """Reason of a requested cancellation; None if none is requested."""
        return self._read(lambda tx: sessions.cancel_reason(tx, self.session))

    def iteration(self, number: int) -> v1.Iteration:
        """Read an iteration.

        :raises NotFound: when there is none.
        """
        return self._read(lambda tx: sessions.iteration(tx, self.session, number))

    def iterations(self) -> list[v1.Iteration]:
        """List all iterations, in order."""
        return self._read(lambda tx: sessions.iterations(tx, self.session))

    def labels(self) -> list[Label]:
        """List people's labels of the session's rollouts, the latest last."""
        return self._read(lambda tx: feedback.session_labels(tx, self.session))[-_MAX_LABELS:]

    def change_token(self) -> object:
        """A value that changes whenever the session, its events or its directions change."""
        return self._read(lambda tx: sessions.change_token(tx, self.session))

    def passed_before_reconciling(self) -> bool:
        """Whether this epoch only has to record the success of an earlier one, whose last iteration passed."""
        if not self.done(RECONCILED):
            return False
        done = [entry for entry in self.iterations() if entry.phase == v1.PHASE_DONE]
        return bool(done) and done[-1].passed

    def done(self, key: str) -> bool:
        """Whether the key is recorded in this epoch."""
        return self._read(lambda tx: idempotency.exists(tx, self.session, f"{self.epoch}/{key}"))

    # The session and its iterations.

    def mark(self, key: str) -> bool:
        """Record the key in this epoch; whether it is new."""
        return self._write(lambda tx: self._first(tx, key))

    def begin(self) -> v1.Session:
        """Set the session to RUNNING; the time since its last event, in which no process worked on it, is idle.

        Once in an epoch: `workflows.end_downtime` counts the time without a server within one.
        """

        def write(tx: Transaction) -> v1.Session:
            last = events.last(tx, self.session)

            def edit(session: v1.Session) -> None:
                session.state = v1.SESSION_STATE_RUNNING
                session.state_reason = ""
                session.ClearField("failure")
                session.ClearField("end_time")
                if last is not None:
                    sessions.end_downtime(session, last=last.time, now=tx.now)
                if not session.HasField("start_time"):
                    session.start_time.CopyFrom(timestamp(tx.now))

            return sessions.change(tx, self.session, edit)

        return self._write(write)

    def end(self, ending: Ending) -> v1.Session:
        """Set the session to a final state."""

        def write(tx: Transaction) -> v1.Session:
            total = assignments.env_steps(tx, self.session)
            if ending.warning is not None and self._first(tx, "uncounted"):
                events.append(tx, self.session, ev.Event(warning=ending.warning))

            def edit(session: v1.Session) -> None:
                session.state, session.state_reason = ending.state, ending.message
                session.exhaustion_reason, session.awaiting_approval = ending.exhaustion, 0
                session.env_steps = total
                if ending.uncounted is not None and ending.uncounted.requests:
                    _add_recovered(session, ending.uncounted)
                session.end_time.CopyFrom(timestamp(tx.now))
                if ending.failure is not None:
                    session.failure.CopyFrom(ending.failure)

            message = sessions.get(tx, self.session)
            if message.state in sessions.ENDED:  # this step is repeated
                return message
            for number, cost in ending.uncounted_of_iterations.items():
                sessions.upsert_iteration(tx, self.session, number, partial(_add_recovered, cost=cost))
            return sessions.change(tx, self.session, edit)

        return self._write(write)

    def update(self, changes: v1.Session, paths: Sequence[str]) -> v1.Session:
        """Set fields of the session.

        :param paths: field-mask paths to copy from ``changes``; fields that are not set there are cleared.
        """
        return self._write(
            lambda tx: sessions.change(tx, self.session, lambda message: _merge(changes, message, paths))
        )

    def update_iteration(self, number: int, changes: v1.Iteration, paths: Sequence[str]) -> v1.Iteration:
        """Create or change an iteration (see `update`). A change of phase appends its event."""
        return self._write(
            lambda tx: sessions.upsert_iteration(
                tx, self.session, number, lambda message: _merge(changes, message, paths)
            )
        )

    def enter_phase(self, number: int, phase: v1.Phase.ValueType) -> None:
        """Set the phase of an iteration."""
        self.update_iteration(number, v1.Iteration(phase=phase), ["phase"])

    def finish_iteration(self, number: int, *, passed: bool) -> None:
        """Set an iteration to PHASE_DONE."""
        ended = v1.Iteration(phase=v1.PHASE_DONE, end_time=timestamp(self.now()), passed=passed)
        self.update_iteration(number, ended, ["phase", "end_time", "passed"])

    def mark_edited(self, number: int, what: str) -> None:
        """Record that a person edited ``proposal`` or ``criteria``."""

        def mark(iteration: v1.Iteration) -> None:
            if what not in iteration.edited:
                iteration.edited.append(what)

        self._write(lambda tx: sessions.upsert_iteration(tx, self.session, number, mark))

    def set_best(self, number: int, changes: v1.Session, *, score: float) -> bool:
        """Set an iteration as the session's best if its score is higher than the best so far; whether it is the best.

        :param changes: ``best_judgment`` and ``returns`` to set.
        """
        name = resource_names.iteration_name(self.session, number)

        def write(tx: Transaction) -> bool:
            session = sessions.get(tx, self.session)
            better = not session.HasField("best_score") or score > session.best_score
            # A repeated step finds its own iteration as the best, and has to return the same.
            if not better and session.best_iteration != name:
                return False
            best = v1.Session(best_iteration=name, best_score=score)
            best.MergeFrom(changes)
            paths = ["best_iteration", "best_score", "best_judgment", "returns"]
            sessions.change(tx, self.session, lambda message: _merge(best, message, paths))
            return True

        return self._write(write)

    def record_score(self, number: int, score: float) -> bool:
        """Record an iteration's score; whether the iteration is the session's best."""
        self.update_iteration(number, v1.Iteration(score=score), ["score"])
        return self.set_best(number, v1.Session(), score=score)

    def confirm(
        self,
        number: int,
        *,
        score: float,
        judgment: v1.Judgment | None = None,
        returns: v1.ReturnSummary | None = None,
    ) -> None:
        """Record an iteration's score on fresh seeds, in the iteration and in the session."""
        changes, paths = v1.Iteration(confirmed_score=score), ["confirmed_score"]
        best_changes, best_paths = v1.Session(), []
        if judgment is not None:
            changes.confirmation.CopyFrom(judgment)
            best_changes.confirmation.CopyFrom(judgment)
            paths.append("confirmation")
            best_paths.append("confirmation")

        def write(tx: Transaction) -> None:
            best = sessions.get(tx, self.session).best_iteration == resource_names.iteration_name(self.session, number)
            if best and returns is not None:
                best_changes.returns.CopyFrom(returns)
                best_paths.append("returns")
            sessions.upsert_iteration(tx, self.session, number, lambda message: _merge(changes, message, paths))
            sessions.change(tx, self.session, lambda message: _merge(best_changes, message, best_paths))

        self._write(write)

    def set_report(self, number: int, report: v1.Report) -> None:
        """Record the score of an iteration's policy on report seeds as the session's, and the iteration as the best."""

        def confirm(iteration: v1.Iteration) -> None:
            iteration.confirmed_score = report.mean

        def show(session: v1.Session) -> None:
            session.best_iteration = resource_names.iteration_name(self.session, number)
            session.best_score = report.mean
            session.report.CopyFrom(report)

        def write(tx: Transaction) -> None:
            sessions.upsert_iteration(tx, self.session, number, confirm)
            sessions.change(tx, self.session, show)

        self._write(write)

    def record_video(self, member: str, *, rollout: str, video: str) -> None:
        """Record a rollout's video in its member and in the session."""
        self._write(lambda tx: assignments.show_video(tx, member, rollout=rollout, video=video))
        self.update(v1.Session(best_video=video), ["best_video"])

    # Events and costs.

    def emit(self, event: ev.Event, *, iteration: int = 0, key: str) -> bool:
        """Append an event once under its key; whether it is new."""

        def write(tx: Transaction) -> bool:
            if not self._first(tx, key):
                return False
            events.append(tx, self.session, event, iteration=iteration)
            return True

        return self._write(write)

    def warn(self, reason: str, message: str, *, iteration: int = 0, key: str) -> bool:
        """Append a warning once under its key; whether it is new."""
        warning = ev.Warning(reason=reason, message=message)
        return self.emit(ev.Event(warning=warning), iteration=iteration, key=f"warning/{key}")

    def charge(self, number: int, role: str, cost: v1.Cost, *, key: str = "") -> None:
        """Count a cost for the session, the iteration and the role.

        :param key: count it once under this key; empty: count each call.
        """
        self._write(lambda tx: self._charge(tx, number, role, cost) if not key or self._first(tx, key) else None)

    def _charge(self, tx: Transaction, number: int, role: str, cost: v1.Cost) -> v1.Session:
        def count(message: v1.Iteration | v1.Session) -> None:
            add_cost(message.cost, cost)
            add_cost(message.cost_by_role[role], cost)

        if not cost.requests:
            return sessions.get(tx, self.session)
        sessions.upsert_iteration(tx, self.session, number, count)
        return sessions.change(tx, self.session, count)

    def record_reply(self, number: int, reply: ev.AgentReplied, *, key: str) -> None:
        """Count the cost of a model's reply and append its event, once under its key."""

        def write(tx: Transaction) -> None:
            if self._first(tx, key):
                session = self._charge(tx, number, reply.role, reply.cost)
                reply.session_cost.CopyFrom(session.cost)
                events.append(tx, self.session, ev.Event(agent_replied=reply), iteration=number)

        self._write(write)

    def add_saved_steps(self, steps: int, *, key: str) -> bool:
        """Add saved environment steps once under the key; whether it is new."""

        def write(tx: Transaction) -> bool:
            if not self._first(tx, key):
                return False

            def add(session: v1.Session) -> None:
                session.env_steps_saved += steps

            sessions.change(tx, self.session, add)
            return True

        return self._write(write)

    def count_candidates(
        self, *, candidates: int, episodes: int, cache_hits: int, key: str, across_epochs: bool = False
    ) -> bool:
        """Count evaluated candidates once under a key; whether the key is new.

        :param across_epochs: whether the key is recorded for all epochs, not for this one.
        """

        def add(session: v1.Session) -> None:
            session.candidates += candidates
            session.episodes += episodes
            session.cache_hits += cache_hits

        def write(tx: Transaction) -> bool:
            prefix = "all" if across_epochs else self.epoch
            if not idempotency.record(tx, self.session, f"{prefix}/candidates/{key}"):
                return False
            sessions.change(tx, self.session, add)
            return True

        return self._write(write)

    def count_env_steps(self) -> int:
        """Sum the environment steps of the session's assignments and store the sum in the session."""

        def write(tx: Transaction) -> int:
            total = assignments.env_steps(tx, self.session)
            sessions.change(tx, self.session, lambda session: setattr(session, "env_steps", total))
            return total

        return self._write(write)

    # Human feedback.

    def take_notes(self, number: int) -> list[str]:
        """Take the notes for an iteration; repeated calls return the same notes."""
        return self._write(lambda tx: sessions.take_notes(tx, self.session, number))

    def take_directions(self, number: int, kinds: Sequence[str]) -> dict[str, str]:
        """Take the latest direction of each kind for an iteration; repeated calls return the same or newer ones."""
        return self._write(lambda tx: feedback.take_directions(tx, self.session, number, tuple(kinds)))

    def set_criteria(self, number: int, text: str) -> None:
        """Replace the session's criteria.

        :param text: a JSON list of criteria.
        """
        criteria = [ParseDict(entry, v1.IntentCriterion()) for entry in json.loads(text)]
        self.update(v1.Session(spec=v1.SessionSpec(criteria=criteria)), ["spec.criteria"])
        self.mark_edited(number, "criteria")

    def request_approval(self, number: int, *, key: str) -> float:
        """Record that the iteration's proposal waits for approval; returns the time in seconds since the epoch."""

        def write(tx: Transaction) -> float:
            waiting = v1.Session(awaiting_approval=number)
            sessions.change(tx, self.session, lambda message: _merge(waiting, message, ["awaiting_approval"]))
            if self._first(tx, key):
                requested = ev.ApprovalRequested(iteration=resource_names.iteration_name(self.session, number))
                events.append(tx, self.session, ev.Event(approval_requested=requested), iteration=number)
            return tx.now.timestamp()

        return self._write(write)

    def end_approval(self, number: int, *, since: float, key: str, note: str | None) -> None:
        """Record that the proposal no longer waits for approval.

        :param since: start of the wait, in seconds since the epoch.
        :param note: remark of the approval; None if the proposal was replaced instead.
        """

        def write(tx: Transaction) -> None:
            if not self._first(tx, key):
                return

            def stop(session: v1.Session) -> None:
                session.awaiting_approval = 0
                session.approval_wait_seconds += max(0.0, tx.now.timestamp() - since)

            sessions.change(tx, self.session, stop)
            if note is None:
                return

            def remark(iteration: v1.Iteration) -> None:
                iteration.notes.extend([note] if note else [])

            iteration = sessions.upsert_iteration(tx, self.session, number, remark)
            granted = ev.ApprovalGranted(iteration=iteration.name, note=note)
            events.append(tx, self.session, ev.Event(approval_granted=granted), iteration=number)

        self._write(write)


def _add_recovered(message: v1.Session | v1.Iteration, cost: v1.Cost) -> None:
    """Add a cost that is counted at the end."""
    add_cost(message.cost, cost)
    add_cost(message.cost_by_role["recovered"], cost)


def _merge(source: Message, target: Message, paths: Sequence[str]) -> None:
    # Replaced, not merged: merging appends to repeated fields, and a repeated step would double them.
    FieldMask(paths=paths).MergeMessage(source, target, replace_message_field=True, replace_repeated_field=True)
