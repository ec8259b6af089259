"""Token buckets: what a key may take, and how many keys are kept."""

from __future__ import annotations

import pytest
from dressage.serving.rates import TokenBuckets
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60), st.floats(0.2, 10))
def test_a_key_gets_its_burst_and_its_rate(pauses: list[float], rate: float):
    clock = Clock()
    buckets = TokenBuckets(burst_seconds=5, clock=clock)
    taken = 0
    for pause in pauses:
        clock.now += pause
        wait = buckets.take("a", rate)
        taken += wait == 0
        assert 0 <= wait <= 1 / rate
    assert taken <= max(5 * rate, 1) + clock.now * rate + 1e-6


def test_a_token_that_is_given_back_can_be_taken_again():
    buckets = TokenBuckets(burst_seconds=1, clock=Clock())
    assert buckets.take("a", 1) == 0
    assert buckets.take("a", 1) == pytest.approx(1)
    buckets.give_back("a", 1)
    buckets.give_back("a", 1)
    assert [buckets.take("a", 1) == 0 for _ in range(2)] == [True, False], "no more than a full bucket"


def test_the_least_recently_used_key_is_dropped():
    buckets = TokenBuckets(burst_seconds=1, most=2, clock=Clock())
    for key in ("a", "b", "a", "c"):
        buckets.take(key, 1)
    assert buckets.take("a", 1) > 0 and buckets.take("b", 1) == 0
