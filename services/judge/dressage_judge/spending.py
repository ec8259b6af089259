"""What a judgment's model calls cost, and what may still be spent on the next one."""

from __future__ import annotations

from dressage.api.v1 import session_pb2
from dressage.errors import ResourceExhausted
from dressage.serving.bills import add_cost


class Purse:
    """Adds up costs and holds them against a budget.

    :param budget: tokens of 0 and unset dollars are no bounds.
    """

    def __init__(self, budget: session_pb2.Budget, *, whole: Purse | None = None) -> None:
        self._budget = budget
        self._whole = whole
        self.spent = session_pb2.Cost(dollars=0.0)

    def beside(self) -> Purse:
        """A purse on the same budget that also adds up for itself."""
        return Purse(self._budget, whole=self)

    @property
    def bounded(self) -> bool:
        """Whether there is a bound on tokens or dollars."""
        return bool(self._budget.tokens) or self._budget.HasField("dollars")

    def left(self) -> session_pb2.Budget:
        """What may still be spent.

        :raises ResourceExhausted: ``LLM_BUDGET_EXHAUSTED`` when nothing may.
        """
        if self._whole is not None:
            return self._whole.left()
        left = session_pb2.Budget()
        left.CopyFrom(self._budget)
        if self._budget.tokens:
            left.tokens = self._budget.tokens - self.spent.input_tokens - self.spent.output_tokens
            if left.tokens <= 0:
                raise _exhausted("tokens")
        if self._budget.HasField("dollars"):
            left.dollars = self._budget.dollars - self.spent.dollars
            if left.dollars <= 0:
                raise _exhausted("dollars")
        return left

    def pay(self, cost: session_pb2.Cost) -> None:
        """Counts a cost."""
        add_cost(self.spent, cost)
        if self._whole is not None:
            self._whole.pay(cost)


def _exhausted(kind: str) -> ResourceExhausted:
    message = f"the session's budget for model calls is used up: no {kind} are left for looking at video"
    return ResourceExhausted(message, reason="LLM_BUDGET_EXHAUSTED", metadata={"kind": kind})
