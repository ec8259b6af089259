"""Compares the cost of a request's model calls with its budget."""

from __future__ import annotations

from dressage.api.v1 import session_pb2
from dressage.errors import ResourceExhausted
from dressage.serving.costs import add_cost


class BudgetTracker:
    """Adds up costs and computes what is left of a budget.

    :param budget: 0 tokens and unset dollars are no bounds.
    :param parent: a tracker of the same budget, which adds up the costs of all its children.
    """

    def __init__(self, budget: session_pb2.Budget, *, parent: BudgetTracker | None = None) -> None:
        self._budget = budget
        self._parent = parent
        self.spent = session_pb2.Cost(dollars=0.0)

    def child(self) -> BudgetTracker:
        """Return a tracker of the same budget that adds up its own costs as well."""
        return BudgetTracker(self._budget, parent=self)

    @property
    def has_bound(self) -> bool:
        """Whether tokens or dollars are bounded."""
        return bool(self._budget.tokens) or self._budget.HasField("dollars")

    def remaining(self) -> session_pb2.Budget:
        """Return what is left of the budget.

        :raises ResourceExhausted: ``LLM_BUDGET_EXHAUSTED`` if nothing is left.
        """
        if self._parent is not None:
            return self._parent.remaining()
        remaining = session_pb2.Budget()
        remaining.CopyFrom(self._budget)
        if self._budget.tokens:
            remaining.tokens = self._budget.tokens - self.spent.input_tokens - self.spent.output_tokens
            if remaining.tokens <= 0:
                raise _exhausted_error("tokens")
        if self._budget.HasField("dollars"):
            remaining.dollars = self._budget.dollars - self.spent.dollars
            if remaining.dollars <= 0:
                raise _exhausted_error("dollars")
        return remaining

    def charge(self, cost: session_pb2.Cost) -> None:
        """Add a cost."""
        add_cost(self.spent, cost)
        if self._parent is not None:
            self._parent.charge(cost)


def _exhausted_error(kind: str) -> ResourceExhausted:
    message = f"the session's budget for model calls is used up: no {kind} are left for the video judge"
    return ResourceExhausted(message, reason="LLM_BUDGET_EXHAUSTED", metadata={"kind": kind})
