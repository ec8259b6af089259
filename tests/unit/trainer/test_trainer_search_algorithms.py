"""Algorithms of searches: what they draw, that blocks and interruptions change nothing, and the library used directly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from dressage.envs import load_card
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec
from dressage_trainer.assignments.requests import search_task
from dressage_trainer.search.algorithms import ALGORITHMS, Space, algorithm
from dressage_trainer.search.algorithms.cma_es import library_seed
from dressage_trainer.search.algorithms.hill_climb import OFFSPRING
from dressage_trainer.search.engine import Search
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.trainer.test_trainer_search import assignment, equal, searched, task

REAL = PolicySpec.of("linear", load_card("CartPole-v1"))
TABLE = PolicySpec(kind="table", observation_count=9, action_count=3)
LEARNING = ["hill_climb", "cma_es"]


def sphere(candidates):
    """A score that is easy to climb: best, 0, where all numbers are 0.3."""
    return [-float(np.sum((row - 0.3) ** 2)) for row in candidates]


def ones(candidates):
    return [float(np.sum(row == 1)) for row in candidates]


def drive(one, score, count, blocks=(10_000,)):
    """Ask for and score ``count`` candidates in blocks of these sizes; return them."""
    rows, turn = [], 0
    while len(rows) < count:
        block = one.ask(min(blocks[turn % len(blocks)], count - len(rows)))
        assert len(block) >= 1
        rows.extend(block)
        one.tell(score(block))
        turn += 1
    return np.array(rows)


def create(name, spec=REAL, *, seed=1, scale=1.0, **options):
    return algorithm(name, spec, seed=seed, scale=scale, **options)


CASES = [("random", REAL), ("random", TABLE), ("hill_climb", REAL), ("hill_climb", TABLE), ("cma_es", REAL)]


@pytest.mark.parametrize(("name", "spec"), CASES)
@settings(max_examples=15, deadline=None)
@given(blocks=st.lists(st.integers(1, 37), min_size=1, max_size=4), stop=st.integers(1, 119))
def test_blocks_and_resumes_change_no_candidate(name, spec, blocks, stop):
    score = ones if spec is TABLE else sphere
    whole = drive(create(name, spec), score, 120)
    np.testing.assert_array_equal(drive(create(name, spec), score, 120, blocks), whole)
    first = create(name, spec)
    head = drive(first, score, stop, blocks)
    second = create(name, spec)
    second.restore(json.loads(json.dumps(first.state())))
    np.testing.assert_array_equal(np.concatenate([head, drive(second, score, 120 - stop)]), whole)


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_cma_es_is_the_library_used_directly(limit):
    """The library is seeded by its own option here, and driven by its own loop."""
    import cma

    one, size = create("cma_es", scale=0.7, limit=limit), Space.of(REAL).size
    bounds = [-limit, limit] if limit else [None, None]
    options = {"seed": library_seed(1, 1), "verbose": -9, "bounds": bounds}
    library = cma.CMAEvolutionStrategy(size * [0], 0.7, options)
    for _ in range(60):
        solutions = library.ask()
        candidates = one.ask(1_000)
        np.testing.assert_allclose(candidates, solutions, rtol=1e-6, atol=1e-9)
        scores = sphere(candidates)
        one.tell(scores)
        library.tell(solutions, [-score for score in scores])
    np.testing.assert_array_equal(one._strategy.mean, library.mean)
    assert one._strategy.sigma == library.sigma


def test_cma_es_leaves_the_shared_random_numbers_alone():
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    drive(create("cma_es"), sphere, 50)
    assert np.random.rand() == expected


def test_learning_algorithms_climb_where_random_draws_do_not():
    scores = {name: max(sphere(drive(create(name, step_size=0.1), sphere, 2_000))) for name in ALGORITHMS}
    assert scores["cma_es"] > -1e-3 and scores["hill_climb"] > -0.3 > scores["random"]
    assert max(ones(drive(create("hill_climb", TABLE), ones, 400))) == 9


def test_a_converged_run_starts_again_with_other_draws():
    """All candidates score alike: the library ends its run after one generation."""
    one = create("cma_es")
    rows = drive(one, lambda block: [0.0] * len(block), 100)
    assert one._runs > 5 and len(np.unique(rows, axis=0)) == 100
    assert 0.8 < rows.std() < 1.2


def test_scores_that_are_no_numbers_lead_nowhere():
    for name in LEARNING:
        rows = drive(create(name, step_size=0.2), lambda block: [np.nan, *sphere(block)[1:]], 1_000)
        assert max(sphere(rows)) > -1.0


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("limit", [0.1, 2.0])
def test_candidates_stay_within_the_range_in_single_precision(name, limit):
    rows = drive(create(name, limit=limit, scale=3.0), sphere, 300)
    assert np.abs(rows).max() <= limit and np.abs(rows).max() > 0.9 * limit
    np.testing.assert_array_equal(rows, rows.astype(np.float32))


def test_mutations_have_the_step_size():
    one = create("hill_climb", scale=4.0, step_size=0.01)
    first = one.ask(OFFSPRING)
    assert first.std() > 2
    one.tell([1.0, *[0.0] * (OFFSPRING - 1)])
    steps = one.ask(OFFSPRING) - first[0]
    assert 0.007 < steps.std() < 0.013


def test_a_mutated_table_differs_in_one_entry():
    one = create("hill_climb", TABLE)
    first = one.ask(OFFSPRING)
    one.tell([0.0, 5.0, *[0.0] * (OFFSPRING - 2)])
    seen = set()
    for _ in range(40):
        mutations = one.ask(OFFSPRING)
        assert ((mutations != first[1]).sum(axis=1) == 1).all() and set(np.unique(mutations)) <= {0.0, 1.0, 2.0}
        seen |= {(int(entry), float(row[entry])) for row in mutations for entry in np.flatnonzero(row != first[1])}
        one.tell([0.0] * OFFSPRING)
    assert len(seen) == 9 * 2  # every entry with each of the other actions


def test_equal_scores_move_the_incumbent_and_worse_ones_do_not():
    one = create("hill_climb", step_size=0.5)
    one.ask(OFFSPRING)
    one.tell([1.0] * OFFSPRING)
    before = one._incumbent
    one.ask(OFFSPRING)
    one.tell([0.9] * OFFSPRING)
    np.testing.assert_array_equal(one._incumbent, before)
    mutations = one.ask(OFFSPRING)
    one.tell([0.5, 1.0, 1.0, *[0.5] * (OFFSPRING - 3)])
    np.testing.assert_array_equal(one._incumbent, mutations[1])


@pytest.mark.parametrize("name", LEARNING)
def test_a_damaged_state_is_refused(name):
    one = create(name)
    drive(one, sphere, 15)
    for change in (lambda s: s.clear(), lambda s: s.update(scores=["x"])):
        state = json.loads(json.dumps(one.state()))
        change(state)
        with pytest.raises(InvalidArgument, match="damaged"):
            create(name).restore(state)


@pytest.mark.parametrize("name", LEARNING)
def test_a_whole_search_is_equal_on_any_cores_and_after_a_resume(name):
    options = dict(algorithm=name, budget=137, episodes=3)
    expected = searched(task(**options))
    assert expected["evaluated"] == 137 and len(expected["improvements"]) > 1
    assert equal(searched(task(cores=3, **options)), expected)
    assert equal(searched(task(**options), blocks=(1, 7, 4)), expected)
    with Search(task(**options)) as search:
        for _ in range(5):
            search._block = 7  # the last block ends within a generation
            search.advance()
        state = search.state()
    with Search(task(cores=2, **options)) as resumed:
        resumed.restore(state)
        while not resumed.done:
            resumed.advance()
        assert equal(resumed.state(), expected)


def test_cma_es_balances_the_pole_within_a_small_budget():
    # Random draws need about 60 candidates each (test_trainer_search); the library's adaptation must not be worse.
    solved = [searched(task(algorithm="cma_es", seed=seed, budget=200, target=475.0)) for seed in range(6)]
    assert sum(one["improvements"][-1][1] >= 475.0 for one in solved) >= 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(algorithm="annealing"),
            r"algorithm: .*got 'annealing'.; expected one of 'random', 'hill_climb', 'cma_es'",
        ),
        (
            dict(algorithm="cma_es", budget=100_001),
            "budget: .*at most 100000 candidates with 'cma_es'; use 'hill_climb'",
        ),
        (dict(range=-1.0), "range: must be .*got -1.0"),
        (dict(step_size=float("nan")), "step_size: must be .*got nan"),
    ],
)
def test_bad_searches_are_refused_by_name(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        search_task(assignment(**changes), cores=1)


def test_cma_es_refuses_tables_and_names_the_remedy():
    with pytest.raises(
        InvalidArgument, match=r"algorithm: .*'hill_climb' or 'random'.* a table of discrete actions has none"
    ):
        create("cma_es", TABLE)
    one = PolicySpec(
        kind="linear", observation_size=1, action_size=1, action_low=(-1.0,), action_high=(1.0,), bias=False
    )
    with pytest.raises(InvalidArgument, match=r"algorithm: .*this policy has one"):
        create("cma_es", one)
