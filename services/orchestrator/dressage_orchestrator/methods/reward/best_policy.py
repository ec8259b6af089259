"""The best policy of a session: what `deliverable` answers, whatever state the session is in.

The best iteration has the member with the best judgment. A session that is cancelled, fails or runs out of a budget may leave
an iteration that was judged at the checkpoints of its training only; each of their policies is stored. The one with the highest
score is the best policy of all; of equals that of the best iteration, which was judged on more episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.policies import WEIGHTS_FILE
from dressage.statistics import mean

from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.method import Deliverable
from dressage_orchestrator.methods.reward.history import trainings


def best_policy(store: SessionStore, artifacts: ArtifactStore) -> Deliverable | None:
    """Return the best policy so far; None if there is none. In a step."""
    best_iteration, iterations = store.get().best_iteration, store.iterations()
    best = next((_of_iteration(store, entry) for entry in iterations if entry.name == best_iteration), None)
    interrupted = [entry for entry in iterations if not entry.HasField("score") and entry.name != best_iteration]
    for checkpoint in sorted(_checkpoints(store, interrupted), key=_Checkpoint.rank, reverse=True):
        if best is not None and (checkpoint.score or 0.0) <= (best.score or 0.0):
            break
        if artifacts.exists(f"{checkpoint.policy}/{WEIGHTS_FILE}"):
            return checkpoint.deliverable()
    return best


def _of_iteration(store: SessionStore, iteration: v1.Iteration) -> Deliverable | None:
    names = trainings(iteration)
    members = store.members(names[-1]) if names else []
    best_config = iteration.reward.best_config
    member = best_member([m for m in members if not best_config or m.config == best_config])
    if member is None:
        return None
    entry = aggregate.deciding(member)
    score = member.judgment.score if member.HasField("judgment") else None
    return Deliverable(iteration.number, member.policy, member.name, _median(entry), entry.env_step, score)


def best_member(members: Sequence[v1.Member]) -> v1.Member | None:
    """Return the member with a policy and the best judgment; of equals, or unjudged ones, the one with the best return."""

    def rank(member: v1.Member) -> tuple[float, float]:
        entry = aggregate.deciding(member)
        return (member.judgment.score if member.HasField("judgment") else 0.0, _return(entry, member))

    return max((member for member in members if member.policy), key=rank, default=None)


@dataclass(frozen=True)
class _Checkpoint:
    """A checkpoint of an iteration that was not judged as a whole."""

    iteration: int
    member: v1.Member
    evaluation: v1.Evaluation

    @property
    def score(self) -> float | None:
        return aggregate.checkpoint_score(self.evaluation)

    @property
    def policy(self) -> str:
        """Artifact prefix of its bundle."""
        if self.member.policy and self.evaluation == aggregate.deciding(self.member):
            return self.member.policy
        return f"{self.member.name}/policies/{self.evaluation.env_step}"

    def rank(self) -> tuple[float, float, int]:
        """Order by score, those without one last; of equals by return, then the latest."""
        score = -1.0 if self.score is None else self.score
        return score, _return(self.evaluation, self.member), self.evaluation.env_step

    def deliverable(self) -> Deliverable:
        name, step = self.member.name, self.evaluation.env_step
        return Deliverable(
            self.iteration, self.policy, name, _median(self.evaluation), step, self.score, interrupted=True
        )


def _checkpoints(store: SessionStore, iterations: Sequence[v1.Iteration]) -> list[_Checkpoint]:
    return [
        _Checkpoint(iteration.number, member, evaluation)
        for iteration in iterations
        for name in trainings(iteration)
        for member in store.members(name)
        for evaluation in member.evaluations
    ]


def _return(evaluation: v1.Evaluation, member: v1.Member) -> float:
    """Return the mean return under the proposed reward, of a judged member under the environment's."""
    judged = member.HasField("judgment")
    return mean(evaluation.returns if judged else evaluation.proposed_returns or evaluation.returns)


def _median(evaluation: v1.Evaluation) -> str:
    return next((entry.artifact for entry in evaluation.rollouts if entry.label == "median"), "")
