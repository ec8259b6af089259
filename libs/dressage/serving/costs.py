"""Costs of model calls: their sum, and the cost that a failed call attaches to its error.

A conversation may use a provider and then fail, for example because the reply cannot be used. Its error has the cost as
metadata, so that callers can charge it.
"""

from __future__ import annotations

from dressage.api.v1 import session_pb2
from dressage.errors import DressageError

_REQUESTS, _INPUT, _OUTPUT, _DOLLARS = "cost_requests", "cost_input_tokens", "cost_output_tokens", "cost_dollars"


def attach_cost(error: DressageError, cost: session_pb2.Cost) -> None:
    """Set the cost of an error's call in its metadata, in place of an earlier one."""
    if not cost.requests:
        return
    error.metadata[_REQUESTS] = str(cost.requests)
    error.metadata[_INPUT] = str(cost.input_tokens)
    error.metadata[_OUTPUT] = str(cost.output_tokens)
    error.metadata.pop(_DOLLARS, None)
    if cost.HasField("dollars"):
        error.metadata[_DOLLARS] = repr(cost.dollars)


def cost_of(error: DressageError) -> session_pb2.Cost:
    """Return the cost in an error's metadata; empty without one, and without dollars where a price is unknown."""
    metadata = error.metadata
    try:
        cost = session_pb2.Cost(
            requests=int(metadata.get(_REQUESTS, "0")),
            input_tokens=int(metadata.get(_INPUT, "0")),
            output_tokens=int(metadata.get(_OUTPUT, "0")),
        )
        if _DOLLARS in metadata:
            cost.dollars = float(metadata[_DOLLARS])
    except ValueError:  # metadata of another program under the same names
        return session_pb2.Cost()
    return cost


def add_cost(total: session_pb2.Cost, part: session_pb2.Cost) -> None:
    """Add a cost; the dollars are unset after a paid part with unknown dollars."""
    fresh = total.requests == 0
    has_dollars = (total.HasField("dollars") or fresh) and (part.HasField("dollars") or part.requests == 0)
    dollars = total.dollars + part.dollars
    total.requests += part.requests
    total.input_tokens += part.input_tokens
    total.output_tokens += part.output_tokens
    if has_dollars and total.requests:
        total.dollars = dollars
    elif not has_dollars:
        total.ClearField("dollars")
