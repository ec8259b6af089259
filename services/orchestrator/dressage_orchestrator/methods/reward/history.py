"""A session's history, as revisions and screenings read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.database.store import Label, SessionStore
from dressage_orchestrator.methods.reward.training import trainings


@dataclass(frozen=True)
class History:
    """A session's earlier iterations with their members and labels.

    :param members: members of each iteration's training, by its number.
    :param best: name of the best iteration; empty if there is none.
    """

    iterations: Sequence[v1.Iteration]
    members: Mapping[int, Sequence[v1.Member]] = field(default_factory=dict)
    labels: Sequence[Label] = ()
    best: str = ""

    def __getitem__(self, number: int) -> v1.Iteration:
        for entry in self.iterations:
            if entry.number == number:
                return entry
        raise KeyError(number)

    def trained(self, number: int) -> Sequence[v1.Member]:
        """Return the members of an iteration's training."""
        return self.members.get(number, ())


def read(store: SessionStore, number: int) -> History:
    """Return the history before iteration ``number``. Call it in a step."""
    iterations = [entry for entry in store.iterations() if entry.number < number]
    members = {entry.number: store.members(names[-1]) for entry in iterations if (names := trainings(entry))}
    return History(iterations, members, store.labels(), store.get().best_iteration)
