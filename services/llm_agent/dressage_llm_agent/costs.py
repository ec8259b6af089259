"""Adds up what a task costs and holds it against what may still be spent."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.errors import ResourceExhausted

from dressage_llm_agent.provider.base import Usage


@dataclass(frozen=True)
class Allowance:
    """What a task may still spend; None: no bound."""

    tokens: int | None = None
    dollars: float | None = None


@dataclass
class Ledger:
    """What a task has spent so far; ``dollars`` is None once a reply of unknown price was bought."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = 0.0
    journal_hits: int = 0

    def add(self, usage: Usage) -> None:
        """Counts a reply that was bought."""
        self.requests += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        known = self.dollars is not None and usage.dollars is not None
        self.dollars = (self.dollars or 0.0) + (usage.dollars or 0.0) if known else None

    def check(self, allowance: Allowance) -> None:
        """Refuses the next request where the allowance is used up.

        :raises ResourceExhausted: ``LLM_BUDGET_EXHAUSTED``, with the kind of the budget.
        """
        tokens = self.input_tokens + self.output_tokens
        if allowance.tokens is not None and tokens >= allowance.tokens:
            raise _exhausted("tokens", f"{tokens} of {allowance.tokens} tokens are used")
        if allowance.dollars is not None and self.dollars is not None and self.dollars >= allowance.dollars:
            raise _exhausted("dollars", f"${self.dollars:.4f} of ${allowance.dollars:.4f} are spent")


def _exhausted(kind: str, words: str) -> ResourceExhausted:
    message = f"the session's budget for model calls is used up: {words}"
    return ResourceExhausted(message, reason="LLM_BUDGET_EXHAUSTED", metadata={"kind": kind})
