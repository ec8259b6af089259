"""Adds up the cost of a task and compares it with the remaining budget."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2
from dressage.errors import ResourceExhausted

from dressage_llm_agent.provider.base import Usage


@dataclass
class Ledger:
    """Cost of a task so far; ``dollars`` is None after a reply of unknown price."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = 0.0
    journal_hits: int = 0

    def add(self, usage: Usage) -> None:
        """Add the usage of a reply from a provider."""
        self.requests += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        has_prices = self.dollars is not None and usage.dollars is not None
        self.dollars = (self.dollars or 0.0) + (usage.dollars or 0.0) if has_prices else None

    def check(self, budget: session_pb2.Budget) -> None:
        """Refuse the next request if the budget is used up.

        :param budget: 0 tokens and unset dollars are no bounds.
        :raises ResourceExhausted: ``LLM_BUDGET_EXHAUSTED``, with the kind of the budget.
        """
        tokens = self.input_tokens + self.output_tokens
        if budget.tokens and tokens >= budget.tokens:
            raise _exhaustion("tokens", f"{tokens} of {budget.tokens} tokens are used")
        if budget.HasField("dollars") and self.dollars is not None and self.dollars >= budget.dollars:
            raise _exhaustion("dollars", f"${self.dollars:.4f} of ${budget.dollars:.4f} are spent")

    def cost(self) -> session_pb2.Cost:
        """Return the cost as a message; its dollars are unset if unknown."""
        return session_pb2.Cost(
            requests=self.requests,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            dollars=self.dollars,
        )


def is_bounded(budget: session_pb2.Budget) -> bool:
    """Return whether a budget bounds tokens or dollars."""
    return bool(budget.tokens) or budget.HasField("dollars")


def _exhaustion(kind: str, details: str) -> ResourceExhausted:
    message = f"the session's budget for model calls is used up: {details}"
    return ResourceExhausted(message, reason="LLM_BUDGET_EXHAUSTED", metadata={"kind": kind})
