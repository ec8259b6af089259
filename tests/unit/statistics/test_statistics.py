"""Statistics against scipy, against published examples, and against properties that they must have."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from dressage import errors, statistics
from dressage.installation import install_command
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

SAMPLES = st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 3)), min_size=2, max_size=12)
UNIT_SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(st.lists(SAMPLES, min_size=1, max_size=5))
def test_iqm_is_the_trimmed_mean_of_scipy(strata: list[list[float]]) -> None:
    scores = np.concatenate([np.array(part) for part in strata])
    expected = stats.trim_mean(scores, 0.25, axis=None)
    assert statistics.iqm([np.array(part) for part in strata]) == pytest.approx(expected, abs=1e-9)


def test_iqm_ignores_outliers() -> None:
    assert statistics.iqm([np.array([0.0, 1.0, 2.0, 1e9]), np.array([1.0, 1.5, 1.2, -1e9])]) == pytest.approx(1.175)


@given(SAMPLES, SAMPLES)
def test_welch_is_that_of_scipy_with_one_where_it_is_undefined(first: list[float], second: list[float]) -> None:
    test = statistics.welch(first, second)
    with np.errstate(all="ignore"):
        expected = stats.ttest_ind(first, second, equal_var=False)
    if np.isnan(expected.pvalue):
        assert (test.statistic, test.p) == (0.0, 1.0)
    else:
        assert (test.statistic, test.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))


def test_welch_of_a_published_example() -> None:
    # Student's sleep data: R's t.test(extra ~ group, data = sleep) gives t = -1.8608, p = 0.07939.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    test = statistics.welch(first, second)
    assert (round(test.statistic, 4), round(test.p, 5)) == (-1.8608, 0.07939)


def test_welch_of_constant_samples_is_undefined() -> None:
    assert statistics.welch([1.0, 1.0], [1.0, 1.0]) == statistics.Test(0.0, 1.0)
    assert statistics.welch([1.0], [2.0, 3.0]) == statistics.Test(0.0, 1.0)


def test_holm_of_a_published_example() -> None:
    # R's p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm").
    values = [0.01, 0.02, 0.03, 0.04, 0.05]
    assert statistics.holm(values) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0] and statistics.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_order_and_is_between_p_and_bonferroni(values: list[float]) -> None:
    adjusted = statistics.holm(values)
    for p, q in zip(values, adjusted, strict=True):
        assert p <= q <= min(1.0, p * len(values)) + 1e-12
    assert [adjusted[i] for i in np.argsort(values, kind="stable")] == sorted(adjusted)


@given(st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=4))
def test_probability_of_improvement_is_that_of_mann_and_whitney(tasks: list[tuple[list[float], list[float]]]) -> None:
    ours, others = [np.array(a) for a, _ in tasks], [np.array(b) for _, b in tasks]
    expected = np.mean(
        [stats.mannwhitneyu(a, b).statistic / (len(a) * len(b)) for a, b in zip(ours, others, strict=True)]
    )
    computed = statistics.probability_of_improvement(ours, others)
    assert computed == pytest.approx(expected)
    assert statistics.probability_of_improvement(others, ours) == pytest.approx(1 - computed)


def test_the_stratified_bootstrap_resamples_within_tasks() -> None:
    strata = [np.full(5, 1.0), np.full(5, 100.0)]
    interval = statistics.stratified_bootstrap(strata, statistics.iqm)
    assert (interval.value, interval.low, interval.high) == (50.5, 50.5, 50.5)


def test_the_bootstrap_interval_agrees_with_that_of_scipy() -> None:
    values = np.random.default_rng(1).normal(10, 3, 30)
    computed = statistics.summary(values)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert (computed.low, computed.high) == (
        pytest.approx(expected.low, abs=0.1),
        pytest.approx(expected.high, abs=0.1),
    )
    assert (computed.mean, computed.deviation) == (pytest.approx(values.mean()), pytest.approx(values.std(ddof=1)))
    assert computed == statistics.summary(values)
    one = statistics.summary([4.0])
    assert (one.mean, one.deviation, one.low, one.high, one.count) == (4.0, 0.0, 4.0, 4.0, 1)


def test_scores_are_normalised_between_bounds() -> None:
    np.testing.assert_allclose(statistics.normalise([-200.0, -110.0, -20.0], (-200.0, -110.0)), [0.0, 1.0, 2.0])
    np.testing.assert_allclose(statistics.normalise([5.0], (5.0, 5.0)), [1.0])


def test_curves_are_step_functions_over_runs() -> None:
    runs = [
        (np.array([10.0, 20.0]), np.array([1.0, 5.0])),
        (np.array([15.0]), np.array([3.0])),
    ]
    mean, low, high = statistics.mean_curve(runs, np.array([0.0, 10.0, 19.0, 20.0, 99.0]))
    np.testing.assert_allclose(mean, [2.0, 2.0, 2.0, 4.0, 4.0])
    assert (low <= mean).all() and (mean <= high).all()


def test_the_difference_of_shares_is_newcombes_example() -> None:
    # Newcombe (1998), table II, method 10, example (a): 56/70 and 48/80 give 0.0524 to 0.3339.
    compared = statistics.share_difference((56, 70), (48, 80))
    assert compared is not None
    assert compared.difference.value == pytest.approx(0.2)
    assert (round(compared.difference.low, 4), round(compared.difference.high, 4)) == (0.0524, 0.3339)
    assert statistics.share_difference((0, 0), (1, 2)) is None


def test_a_missing_scipy_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(errors.FailedPrecondition, match=re.escape(f"needs scipy: {install_command('experiments')}")):
        statistics.welch([1.0, 2.0], [3.0, 4.0])


@given(UNIT_SCORES)
def test_the_interval_holds_the_mean_and_stays_in_range(scores: list[float]) -> None:
    low, high = statistics.bootstrap_interval(scores)
    assert min(scores) <= low <= high <= max(scores)
    assert low - 1e-9 <= statistics.mean(scores) <= high + 1e-9
    assert statistics.bootstrap_interval(scores) == (low, high)
    assert statistics.mean(scores) == pytest.approx(np.mean(scores)) and statistics.deviation(scores) == pytest.approx(
        np.std(scores), abs=1e-9
    )


def test_the_interval_agrees_with_scipy() -> None:
    sample = np.random.default_rng(3).uniform(0, 1, 10)
    theirs = stats.bootstrap((sample,), np.mean, n_resamples=20_000, method="percentile", random_state=1)
    low, high = statistics.bootstrap_interval(sample.tolist())
    assert low == pytest.approx(theirs.confidence_interval.low, abs=0.02)
    assert high == pytest.approx(theirs.confidence_interval.high, abs=0.02)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=40))
def test_spearman_equals_scipys(pairs: list[tuple[int, int]]) -> None:
    first, second = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    ours = statistics.spearman(first, second)
    if len(set(first)) < 2 or len(set(second)) < 2:
        assert ours is None
        return
    assert ours == pytest.approx(float(stats.spearmanr(first, second).statistic), abs=1e-9)
    assert statistics.ranks(first) == pytest.approx(list(stats.rankdata(first)))


@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson_equals_scipys(passed: int, total: int) -> None:
    passed = min(passed, total)
    theirs = stats.binomtest(passed, total).proportion_ci(method="wilson")
    interval = statistics.wilson(passed, total)
    assert (interval.value, interval.low, interval.high) == pytest.approx((passed / total, *theirs), abs=1e-12)
    assert statistics.wilson(0, 0) == statistics.Interval(0.0, 0.0, 1.0)


def test_kappa_of_known_tables() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: 0.4 by the textbook (Cohen 1960's arithmetic).
    first = [True] * 25 + [False] * 25
    second = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert statistics.cohen_kappa(first, second) == pytest.approx(0.4)
    assert statistics.cohen_kappa([True, False], [False, True]) == pytest.approx(-1.0)
    assert statistics.cohen_kappa([True, True], [True, True]) is None and statistics.cohen_kappa([], []) is None
