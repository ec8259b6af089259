"""Reconciles the cost of a session with its journal.

The cost of a conversation is counted at its end. If llm-agent, judge or orchestrator dies before that, its replies are in the
journal and answer the repetition without cost, so they have not been counted. At the end of a session its cost is therefore
compared with the journal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts.store import ArtifactStore
from dressage.errors import DressageError, NotFound
from dressage.serving.costs import add_cost

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.models import is_language_model

_REPLY = re.compile(r"/\d+-\d+\.json$")


@dataclass(frozen=True)
class UncountedCost:
    """Cost that was not counted.

    :param session: of the whole session; with 0 requests if all replies were counted.
    :param iterations: of those of its iterations for which it is not 0, by number.
    """

    session: v1.Cost
    iterations: Mapping[int, v1.Cost]


def uncounted_cost(store: ArtifactStore, session: v1.Session, iterations: Sequence[v1.Iteration] = ()) -> UncountedCost:
    """Compute the cost of journalled replies that were not counted.

    The journal is read only if it contains more replies than were counted. Dollars are not set if one price is unknown.

    :param store: store of llm-agent's journal.
    :raises DressageError: errors of the store.
    """
    if not is_language_model(session.spec.model):
        return UncountedCost(v1.Cost(), {})
    keys = [entry.key for entry in store.list(f"{session.name}/llm/") if _REPLY.search(entry.key)]
    prices: dict[str, v1.Cost] = {}
    of_iterations = {}
    for iteration in iterations:
        own = [key for key in keys if _iteration_of(key.removeprefix(f"{session.name}/llm/")) == iteration.number]
        missing = _missing(store, own, iteration.cost, prices)
        if missing.requests:
            of_iterations[iteration.number] = missing
    return UncountedCost(_missing(store, keys, session.cost, prices), of_iterations)


def _iteration_of(key: str) -> int:
    """Return the number of the iteration for which a reply was bought; replies for the whole session belong to the first."""
    match = re.match(r"iterations/(\d+)/", key)
    return int(match[1]) if match else 1


def _missing(store: ArtifactStore, keys: Sequence[str], counted: v1.Cost, prices: dict[str, v1.Cost]) -> v1.Cost:
    """Return how much more the replies cost than was counted.

    :param prices: costs of replies that were read already; further ones are added.
    """
    missing = v1.Cost()
    if len(keys) <= counted.requests:
        return missing
    total = v1.Cost()
    for key in keys:
        if key not in prices:
            prices[key] = _cost_of_reply(store, key)
        add_cost(total, prices[key])
    missing.requests = max(0, total.requests - counted.requests)
    missing.input_tokens = max(0, total.input_tokens - counted.input_tokens)
    missing.output_tokens = max(0, total.output_tokens - counted.output_tokens)
    if total.HasField("dollars"):
        missing.dollars = max(0.0, total.dollars - counted.dollars)
    return missing


def uncounted_cost_of(context: SessionContext) -> UncountedCost:
    """`uncounted_cost` of a session; no cost if its journal cannot be read, because the session ends nevertheless."""
    try:
        return uncounted_cost(context.engine.store, context.store.get(), context.store.iterations())
    except (DressageError, OSError) as error:
        context.log.warning(
            "the journal cannot be read; costs of interrupted attempts are not counted", error=str(error)
        )
        return UncountedCost(v1.Cost(), {})


def warning_of(cost: v1.Cost) -> ev.Warning:
    """Create the warning about recovered cost."""
    price = f"{cost.dollars:.4f} US dollars" if cost.HasField("dollars") else "of unknown price"
    message = f"{cost.requests} replies to interrupted attempts ({price}) are now counted"
    return ev.Warning(reason="COST_RECOVERED", message=message)


def _cost_of_reply(store: ArtifactStore, key: str) -> v1.Cost:
    """Cost of a journalled reply; no cost for a missing or malformed entry."""
    try:
        entry: Any = json.loads(store.get(key))
        usage = entry["usage"]
        cost = v1.Cost(requests=1, input_tokens=usage["input_tokens"], output_tokens=usage["output_tokens"])
        if usage["dollars"] is not None:
            cost.dollars = usage["dollars"]
    except (NotFound, ValueError, KeyError, TypeError):
        return v1.Cost()
    return cost
