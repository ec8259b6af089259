"""Costs of model calls: adding them up, and what a call cost although it failed.

A conversation may buy replies and then fail: a reply cannot be used, or the provider goes away. The cost travels with the
error, as metadata, so that whoever counts a session's costs counts these as well.
"""

from __future__ import annotations

from dressage.api.v1 import session_pb2
from dressage.errors import DressageError

_REQUESTS, _INPUT, _OUTPUT, _DOLLARS = "cost_requests", "cost_input_tokens", "cost_output_tokens", "cost_dollars"


def bill(error: DressageError, cost: session_pb2.Cost) -> None:
    """Writes into an error what was spent before it, in place of what it says of that."""
    if not cost.requests:
        return
    error.metadata[_REQUESTS] = str(cost.requests)
    error.metadata[_INPUT] = str(cost.input_tokens)
    error.metadata[_OUTPUT] = str(cost.output_tokens)
    error.metadata.pop(_DOLLARS, None)
    if cost.HasField("dollars"):
        error.metadata[_DOLLARS] = repr(cost.dollars)


def billed(error: DressageError) -> session_pb2.Cost:
    """What was spent before an error; no dollars where a price is unknown, no requests where nothing was spent."""
    told = error.metadata
    try:
        cost = session_pb2.Cost(
            requests=int(told.get(_REQUESTS, "0")),
            input_tokens=int(told.get(_INPUT, "0")),
            output_tokens=int(told.get(_OUTPUT, "0")),
        )
        if _DOLLARS in told:
            cost.dollars = float(told[_DOLLARS])
    except ValueError:  # another program's metadata under the same names is no bill of ours
        return session_pb2.Cost()
    return cost


def add_cost(total: session_pb2.Cost, part: session_pb2.Cost) -> None:
    """Adds a cost; the dollars stay unknown once a paid part's are unknown."""
    fresh = total.requests == 0
    known = (total.HasField("dollars") or fresh) and (part.HasField("dollars") or part.requests == 0)
    dollars = total.dollars + part.dollars
    total.requests += part.requests
    total.input_tokens += part.input_tokens
    total.output_tokens += part.output_tokens
    if known and total.requests:
        total.dollars = dollars
    elif not known:
        total.ClearField("dollars")
