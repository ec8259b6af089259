"""A session's history, as revisions and screenings read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.errors import NotFound

from dressage_orchestrator.database.feedback import Label
from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.methods.reward import trends
from dressage_orchestrator.methods.reward.naming import trainings
from dressage_orchestrator.methods.reward.trends import Trend


@dataclass(frozen=True)
class History:
    """A session's earlier iterations with their members and labels.

    :param members: members of each iteration's training, by its number.
    :param best: name of the best iteration; empty if there is none.
    :param trend: returns how a member's metrics developed; empty if they are not stored.
    """

    iterations: Sequence[v1.Iteration]
    members: Mapping[int, Sequence[v1.Member]] = field(default_factory=dict)
    labels: Sequence[Label] = ()
    best: str = ""
    trend: Callable[[v1.Member], Trend] = lambda _: {}

    def __getitem__(self, number: int) -> v1.Iteration:
        for entry in self.iterations:
            if entry.number == number:
                return entry
        raise KeyError(number)

    def trained(self, number: int) -> Sequence[v1.Member]:
        """Return the members of an iteration's training."""
        return self.members.get(number, ())


def read(store: SessionStore, number: int, artifacts: ArtifactStore | None = None) -> History:
    """Return the history before iteration ``number``. Call it in a step.

    :param artifacts: holds the members' metrics, which are read on demand.
    """
    iterations = [entry for entry in store.iterations() if entry.number < number]
    members = {entry.number: store.members(names[-1]) for entry in iterations if (names := trainings(entry))}

    def trend(member: v1.Member) -> Trend:
        try:
            data = b"" if artifacts is None else artifacts.get(f"{member.name}/metrics.jsonl")
        except NotFound:
            return {}
        return trends.trend(trends.parse(data)) if len(data) <= trends.MAX_BYTES else {}

    return History(iterations, members, store.labels(), store.get().best_iteration, trend)
