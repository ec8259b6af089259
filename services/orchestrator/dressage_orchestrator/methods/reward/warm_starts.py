"""Trainings that continue from the policies of an earlier iteration.

Each seed continues from the policy of the same seed, so that the seeds stay independent and the mean over them still measures
the reward and not the luck of one policy; a seed without a policy continues from the best one. Weights of the policy and
statistics of the observations continue. The value network and the statistics of the returns are of a reward: they continue only
if that did not change. The optimiser starts anew.

Who decides, and for what reason, is recorded with the proposal. Whether it can be done is known only once the reward has passed
its check, so it is settled before the training. What cannot be done is refused with a reason, and the training starts from
random weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import resource_names
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.methods.reward.history import trainings
from dressage_orchestrator.methods.reward.spec import continues, hyperparameters
from dressage_orchestrator.models import USER


def planned_start(
    spec: v1.SessionSpec,
    parent: v1.Iteration | None,
    *,
    directed: v1.FromParent.ValueType,
    proposed: bool,
    author: str,
    reason: str,
) -> v1.WarmStart | None:
    """Return whether a revision is to continue from its parent's policies; None if not.

    :param directed: a person's choice for this iteration; unspecified: none.
    :param proposed: whether its author asks for it.
    """
    choice = directed or spec.reward.from_parent
    if parent is None or choice == v1.FROM_PARENT_NEVER:
        return None
    if choice == v1.FROM_PARENT_ALWAYS:
        return v1.WarmStart(iteration=parent.name, decided_by=USER)
    if proposed:
        return v1.WarmStart(iteration=parent.name, decided_by=author, reason=reason)
    return None


def refusal(spec: v1.SessionSpec) -> str:
    """Return why the spec's backend and algorithm cannot continue from a policy; empty if they can."""
    if continues(spec):
        return ""
    return f"{spec.reward.algorithm} of the backend {spec.reward.backend} cannot continue from a policy"


def start_candidates(
    spec: v1.SessionSpec, past: Sequence[v1.Iteration], *, directed: v1.FromParent.ValueType
) -> list[int]:
    """Return the numbers of the iterations from whose policies the author of a revision may continue.

    :param past: earlier iterations.
    """
    if (directed or spec.reward.from_parent) != v1.FROM_PARENT_AUTO or not continues(spec):
        return []
    return [entry.number for entry in past if entry.HasField("score")]


def settle(context: SessionContext, number: int, *, tries: int, source: str) -> None:
    """Record what an intended continuation comes to, and report it to the user.

    :param source: the reward that is trained on.
    """

    def record() -> None:
        iteration = context.store.iteration(number)
        if not iteration.reward.HasField("warm_start"):
            return
        start = v1.WarmStart()
        start.CopyFrom(iteration.reward.warm_start)
        parent = context.store.iteration(resource_names.parse_iteration(start.iteration)[1])
        start.refused = _refusal(context, parent, iteration)
        start.score = parent.score
        start.keeps_value = not start.refused and _same_returns(context.spec, parent, iteration, source)
        changes = v1.Iteration(reward=v1.RewardProposal(warm_start=start))
        context.store.update_iteration(number, changes, ["reward.warm_start"])
        event = ev.Event(warm_started=ev.WarmStarted(warm_start=start))
        context.store.emit(event, iteration=number, key=f"warm-start:{number}:{tries}")

    context.step(f"warm-start:{number}:{tries}", record)


def policies(context: SessionContext, iteration: v1.Iteration) -> dict[int, work.StartPolicy]:
    """Return the policies that an iteration's seeds continue from, by seed; none if it starts from random weights."""
    start = iteration.reward.warm_start
    if not start.iteration or start.refused:
        return {}
    trained = _members_with_policy(context, context.store.iteration(resource_names.parse_iteration(start.iteration)[1]))
    best = max(trained, key=lambda member: (member.judgment.score, -member.seed))
    own = {member.seed: member for member in trained}
    seeds = range(context.spec.seed, context.spec.seed + context.spec.reward.seeds)
    return {seed: work.StartPolicy(bundle=own.get(seed, best).policy, keeps_value=start.keeps_value) for seed in seeds}


def _members_with_policy(context: SessionContext, parent: v1.Iteration) -> Sequence[v1.Member]:
    """Return the members of the parent's best config that have a policy."""
    names = trainings(parent)
    members = context.store.members(names[-1]) if names else []
    best = parent.reward.best_config
    return [member for member in members if member.policy and (not best or member.config == best)]


def _refusal(context: SessionContext, parent: v1.Iteration, iteration: v1.Iteration) -> str:
    """Return why a training cannot continue from the parent's policies; empty if it can."""
    spec = context.spec
    if refusal(spec):
        return refusal(spec)
    if not _members_with_policy(context, parent):
        return f"iteration {parent.number} has no policy"
    had = hyperparameters(spec, _winner(parent))
    for config in iteration.reward.configs:
        now = hyperparameters(spec, config)
        if now.hidden_sizes != had.hidden_sizes:
            sizes = ("x".join(map(str, each.hidden_sizes)) for each in (now, had))
            return "its network of {} units differs from the {} of iteration {}".format(*sizes, parent.number)
        if now.normalize_observation != had.normalize_observation:
            return f"it normalises observations unlike iteration {parent.number}"
    return ""


def _same_returns(spec: v1.SessionSpec, parent: v1.Iteration, iteration: v1.Iteration, source: str) -> bool:
    """Whether the parent's value network estimates the returns of this training: of the same reward and discount."""
    discount = hyperparameters(spec, _winner(parent)).discount
    configs = iteration.reward.configs
    return source == parent.reward.source and all(hyperparameters(spec, c).discount == discount for c in configs)


def _winner(parent: v1.Iteration) -> v1.Config:
    configs = list(parent.reward.configs)
    return next((config for config in configs if config.id == parent.reward.best_config), configs[0])
