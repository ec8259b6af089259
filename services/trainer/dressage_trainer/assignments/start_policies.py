"""The stored policies from which members' trainings continue."""

from __future__ import annotations

import shutil

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.errors import InvalidArgument, NotFound
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load

from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.lease.files import get_file
from dressage_trainer.messages import MemberStart


async def fetch_starts(context: AssignmentContext) -> dict[str, MemberStart]:
    """Download the policies from which the members of a training continue; by member, none if all start anew.

    :raises InvalidArgument: if one is missing or has no trained network.
    """
    starts = {}
    for member in context.assignment.train.members:
        if member.HasField("start"):
            starts[member.id] = await _fetch(context, member)
    return starts


async def _fetch(context: AssignmentContext, member: pb.MemberSpec) -> MemberStart:
    folder, bundle = context.scratch / "starts" / member.id, member.start.bundle.rstrip("/")
    try:
        for name in (WEIGHTS_FILE, CARD_FILE):
            await get_file(context, f"{bundle}/{name}", folder / name)
        policy = load(folder)
    except NotFound as error:
        message = f"the policy that {member.id} is to continue from is missing in the store: {bundle}"
        raise InvalidArgument(message, field="start") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    description = policy.description
    provenance = {
        "policy": bundle,
        "env_steps": description.provenance.get("env_steps", 0),
        "value_network": "kept" if member.start.keeps_value else "reset",
    }
    return MemberStart(
        weights=dict(policy.weights),
        statistics={name: float(value) for name, value in description.statistics.items()},
        keeps_value=member.start.keeps_value,
        provenance=provenance,
    )
