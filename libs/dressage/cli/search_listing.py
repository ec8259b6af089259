"""The iterations of a search as a table and as text: candidates, the chosen one, its returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage.api.v1 import session_pb2 as pb
from dressage.cli import output
from dressage.sdk.texts import mean_text

_COLUMNS = ("iteration", "phase", "author", "score", "candidates", "chosen", "returns", "episodes", "remark")
_MAX_VALUES = 6


def is_search(iteration: dict[str, Any]) -> bool:
    """Return whether an iteration, as JSON values, proposes parameters, code or programs."""
    return any(kind in iteration for kind in ("parameters", "code", "program"))


def print_iterations(iterations: Sequence[dict[str, Any]]) -> None:
    """Print a table of iterations, given as JSON values; those of other methods have no candidates."""
    output.print_table(_COLUMNS, [_row(iteration) for iteration in iterations], empty="no iterations")


def _row(iteration: dict[str, Any]) -> tuple[object, ...]:
    proposal = iteration.get("parameters") or iteration.get("code") or iteration.get("program") or {}
    candidates = proposal.get("candidates", [])
    chosen = proposal.get("chosen", 0)
    best = candidates[chosen - 1] if 1 <= chosen <= len(candidates) else {}
    search = proposal.get("search", {})
    score = iteration.get("score", best.get("mean_return", search.get("best_score")))
    return (
        iteration.get("number", ""),
        iteration.get("phase", "").removeprefix("PHASE_").lower(),
        iteration.get("author", ""),
        "" if score is None else mean_text(float(score)),
        _candidates(candidates, search),
        f"{chosen} {best.get('origin', '')}".strip() if best else "",
        _range(best.get("returns", [])),
        proposal.get("episodes", search.get("episodes", "")),
        _remark(iteration, proposal, candidates),
    )


def _candidates(candidates: Sequence[dict[str, Any]], search: dict[str, Any]) -> str:
    if not candidates or (search.get("evaluated") and "best_program" in search):
        return f"{int(search['evaluated']):,}" if search.get("evaluated") else ""
    cached = sum(1 for each in candidates if each.get("duplicate_of") or each.get("duplicate"))
    failed = sum(1 for each in candidates if each.get("failure"))
    notes = [f"{count} {name}" for count, name in ((cached, "cached"), (failed, "failed")) if count]
    return f"{len(candidates)} ({', '.join(notes)})" if notes else str(len(candidates))


def _range(returns: Sequence[float]) -> str:
    if not returns:
        return ""
    low, high = min(returns), max(returns)
    return mean_text(low) if low == high else f"{mean_text(low)} to {mean_text(high)}"


def _remark(iteration: dict[str, Any], proposal: dict[str, Any], candidates: Sequence[dict[str, Any]]) -> str:
    """Return the failure of an iteration, else the rule that changed its revision, else the values of the chosen candidate."""
    failure = iteration.get("failure", {}).get("message", "")
    rules = ", ".join(f"revision {each['rule']}" for each in candidates if each.get("rule"))
    values = [f"{value:g}" for value in proposal.get("values", [])[:_MAX_VALUES]]
    more = ", …" if len(proposal.get("values", [])) > _MAX_VALUES else ""
    return failure or rules or proposal.get("program", "") or ", ".join(values) + more


def proposal_text(iteration: pb.Iteration) -> str | None:
    """Return the chosen parameters of an iteration, one a line, for comparisons; None for other proposals."""
    if iteration.WhichOneof("proposal") != "parameters":
        return None
    values = iteration.parameters.values or iteration.parameters.search.best_parameters
    return "\n".join(f"parameter {index}: {value:.6g}" for index, value in enumerate(values))
