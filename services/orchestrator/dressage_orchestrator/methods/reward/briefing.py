"""The brief of the reward method's roles: the intent, and what is true of the session.

A repeated request must equal the first one, or its journalled reply could not be used. The facts therefore come from the spec.
What is left of the budget changes with each call; only the reviser is given it, because its task is recorded in a step.
"""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.conversations import brief


def reward_brief(
    context: SessionContext, number: int, *, left: v1.Budget | None = None, steps_per_member: int = 0
) -> agent_pb.Brief:
    """Return the brief of a role that works on iteration ``number``.

    :param left: what is left of the budget; None: the session's limits.
    :param steps_per_member: of the iteration, if it differs from the spec's; 0: the spec's.
    """
    spec, whole = context.spec, brief(context)
    whole.facts.CopyFrom(
        agent_pb.SessionFacts(
            environment_options=spec.environment_options,
            steps_per_member=steps_per_member or spec.reward.steps_per_member,
            most_steps_per_member=spec.reward.max_steps_per_member,
            seeds=spec.reward.seeds,
            pass_threshold=spec.pass_threshold,
            iteration=number,
            max_iterations=spec.max_iterations,
            budget=spec.budget if left is None else left,
        )
    )
    return whole
