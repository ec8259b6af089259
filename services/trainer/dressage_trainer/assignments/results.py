"""How an assignment ends, as the message that is reported."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1.session_pb2 import Failure

Cause = pb.AssignmentFailure.Cause


def failed(reason: str, message: str, cause: Cause.ValueType) -> pb.AssignmentResult:
    """Return the result of an assignment that failed.

    :param cause: who is to blame: with `CAUSE_INFRASTRUCTURE` another attempt may succeed.
    """
    failure = Failure(reason=reason, message=message)
    return pb.AssignmentResult(failure=pb.AssignmentFailure(failure=failure, cause=cause))


def generated_code_failed(reason: str, message: str) -> pb.AssignmentResult:
    """Return the result where generated code is to blame."""
    return failed(reason, message, pb.AssignmentFailure.CAUSE_GENERATED_CODE)


def assignment_refused(reason: str, message: str) -> pb.AssignmentResult:
    """Return the result where the assignment or its size is to blame."""
    return failed(reason, message, pb.AssignmentFailure.CAUSE_ASSIGNMENT)


def infrastructure_failed(reason: str, message: str, *, remedy: str = "") -> pb.AssignmentResult:
    """Return the result where the machine is to blame.

    :param remedy: what the user can do about it.
    """
    result = failed(reason, message, pb.AssignmentFailure.CAUSE_INFRASTRUCTURE)
    result.failure.failure.remedy = remedy
    return result


def all_members_stopped(failures: Sequence[Failure]) -> pb.AssignmentResult:
    """Return the result where no member is left; the generated code is to blame if any of these causes was the reward.

    :param failures: why each member was stopped, in the members' order; at least one.
    """
    by_reward = [failure for failure in failures if failure.reason.startswith("REWARD")]
    message = f"no member could continue: {[*by_reward, *failures][0].message}"
    make = generated_code_failed if by_reward else assignment_refused
    return make("ALL_MEMBERS_STOPPED", message)
