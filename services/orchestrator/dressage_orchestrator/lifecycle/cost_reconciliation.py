"""What a session has paid for, according to its journal.

A conversation's cost is counted when it is over. If llm-agent, judge or orchestrator dies before that, the replies
that were bought are in the journal and answer the repetition for nothing: nothing has counted them. At its end a
session's account is therefore compared with the journal.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts.store import ArtifactStore
from dressage.errors import DressageError, NotFound
from dressage.serving.costs import add_cost

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.models import is_language_model

_REPLY = re.compile(r"/\d+-\d+\.json$")


def uncounted(store: ArtifactStore, session: v1.Session) -> v1.Cost:
    """The cost of journalled replies that the session's account lacks; no requests where it lacks none.

    The journal is read only if it holds more replies than were counted. Dollars are unknown as soon as one price is.

    :param store: the store that llm-agent journals into.
    :raises DressageError: what the store raises.
    """
    missing = v1.Cost()
    if not is_language_model(session.spec.model):
        return missing
    keys = [entry.key for entry in store.list(f"{session.name}/llm/") if _REPLY.search(entry.key)]
    if len(keys) <= session.cost.requests:
        return missing
    bought = v1.Cost()
    for key in keys:
        add_cost(bought, _price(store, key))
    missing.requests = max(0, bought.requests - session.cost.requests)
    missing.input_tokens = max(0, bought.input_tokens - session.cost.input_tokens)
    missing.output_tokens = max(0, bought.output_tokens - session.cost.output_tokens)
    if bought.HasField("dollars"):
        missing.dollars = max(0.0, bought.dollars - session.cost.dollars)
    return missing


def uncounted_of(context: SessionContext) -> v1.Cost:
    """`uncounted` of a session; nothing where its journal cannot be read, as a session ends nevertheless."""
    try:
        return uncounted(context.engine.store, context.store.get())
    except (DressageError, OSError) as error:
        context.log.warning(
            "the journal cannot be read; costs of interrupted attempts stay uncounted", error=str(error)
        )
        return v1.Cost()


def warning_of(cost: v1.Cost) -> ev.Warning:
    """Says what is counted now."""
    price = f"{cost.dollars:.4f} US dollars" if cost.HasField("dollars") else "of unknown price"
    words = f"{cost.requests} replies bought by interrupted attempts ({price}) are now counted"
    return ev.Warning(reason="COST_RECOVERED", message=words)


def _price(store: ArtifactStore, key: str) -> v1.Cost:
    """What one journalled reply cost; nothing for an entry that is gone, or is none."""
    try:
        entry: Any = json.loads(store.get(key))
        usage = entry["usage"]
        cost = v1.Cost(requests=1, input_tokens=usage["input_tokens"], output_tokens=usage["output_tokens"])
        if usage["dollars"] is not None:
            cost.dollars = usage["dollars"]
    except (NotFound, ValueError, KeyError, TypeError):
        return v1.Cost()
    return cost
