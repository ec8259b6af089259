"""Prometheus metrics of model calls (``dressage_llm_*``); no session id in a label."""

from __future__ import annotations

import functools

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from dressage_llm_agent.provider.base import Usage

_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_LONGEST_LABEL = 80


class LlmMetrics:
    """The metric families of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["provider", "model", "role"]
        self._requests = Counter(
            "dressage_llm_requests", "Requests to models, by outcome.", [*labels, "outcome"], registry=registry
        )
        self._tokens = Counter(
            "dressage_llm_tokens", "Tokens sent and received.", [*labels, "direction"], registry=registry
        )
        self._dollars = Counter(
            "dressage_llm_cost_dollars", "US dollars spent, where prices are known.", labels, registry=registry
        )
        self._seconds = Histogram(
            "dressage_llm_request_seconds",
            "Seconds from request to reply, retries included.",
            labels,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._hits = Counter(
            "dressage_llm_journal_hits", "Replies taken from the journal.", ["role"], registry=registry
        )

    def count_reply(self, *, model: str, role: str, usage: Usage, seconds: float) -> None:
        """Count a reply of a provider."""
        labels = _labels(model, role)
        self._requests.labels(*labels, "ok").inc()
        self._tokens.labels(*labels, "input").inc(usage.input_tokens)
        self._tokens.labels(*labels, "output").inc(usage.output_tokens)
        self._hits.labels(role)  # exported as 0 before the first reply from the journal
        if usage.dollars is not None:
            self._dollars.labels(*labels).inc(usage.dollars)
        self._seconds.labels(*labels).observe(seconds)

    def count_failure(self, *, model: str, role: str, reason: str) -> None:
        """Count a request that failed after its retries."""
        self._requests.labels(*_labels(model, role), reason.lower()).inc()

    def count_journal_hit(self, *, role: str) -> None:
        """Count a reply from the journal."""
        self._hits.labels(role).inc()


@functools.cache
def llm_metrics(registry: CollectorRegistry = REGISTRY) -> LlmMetrics:
    """Return the families of ``registry``, which all services of a process share."""
    return LlmMetrics(registry)


def _labels(model: str, role: str) -> tuple[str, str, str]:
    provider = model.split("/", 1)[0] if "/" in model else "default"
    return provider[:_LONGEST_LABEL], model[:_LONGEST_LABEL], role
