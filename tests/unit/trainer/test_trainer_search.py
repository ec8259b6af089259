"""The engine of budgeted searches: its results are real, and depend on its task only."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs import load_card
from dressage.envs.adding import add_registered
from dressage.errors import InvalidArgument
from dressage.policies import Policy
from dressage.policies.kinds import PolicySpec
from dressage.sandbox.pipe import encode, unpack
from dressage_trainer.assignments.requests import search_task
from dressage_trainer.search.algorithms.random import RandomSearch
from dressage_trainer.search.engine import Search
from dressage_trainer.search.messages import SearchTask
from dressage_trainer.search.scoring import BatchScorer, Scores, StockScorer, policy_of, scorer


def assignment(**changes) -> pb.SearchAssignment:
    request = pb.SearchAssignment(
        environment="CartPole-v1", algorithm="random", budget=300, episodes=5, seed=1, episode_seed=1_000
    )
    request.policy.kind = "linear"
    for name, value in changes.items():
        owner, _, field = name.rpartition("__")
        setattr(getattr(request, owner) if owner else request, field, value)
    return request


def task(*, cores: int = 1, **changes) -> SearchTask:
    return search_task(assignment(**changes), cores=cores)


def searched(one: SearchTask, *, blocks: tuple[int, ...] = (), scorer=None):
    """The whole search, in blocks of these sizes if they are given; its final state."""
    with Search(one, play=scorer) as search:
        while not search.done:
            if blocks:
                search._block = blocks[search.progress.evaluated % len(blocks)]
            search.advance()
        return search.state()


def equal(a, b) -> bool:
    return encode(a) == encode(b)


def stock_returns(policy: Policy, seeds) -> list[float]:
    """Return returns of Gymnasium's own loop."""
    env, returns = gymnasium.make("CartPole-v1", disable_env_checker=True), []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(int(policy.act(observation)))
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    return returns


@pytest.mark.parametrize(
    "changes",
    [dict(), dict(policy__bias=True), dict(policy__kind="random_features", policy__bias=True, scale=3.0)],
    ids=["linear", "bias", "random_features"],
)
def test_every_improvement_scores_the_same_on_stock_gymnasium(changes):
    one = task(**changes)
    with Search(one) as search:
        improvements = []
        while not search.done:
            improvements += search.advance()
    assert len(improvements) >= 2
    for improvement in improvements:
        returns = stock_returns(policy_of(one, improvement.parameters), range(1_000, 1_005))
        assert np.mean(returns) == improvement.score
    assert [score for _, score in search.progress.improvements] == sorted({one.score for one in improvements})
    assert search.progress.best_score == improvements[-1].score


def test_every_candidate_and_step_counts():
    one = task(budget=40)
    parameters = RandomSearch(one.policy, seed=1, scale=1.0).ask(40)
    returns = np.array([stock_returns(policy_of(one, vector), one.seeds) for vector in parameters])
    state = searched(one)
    assert state["evaluated"] == 40 and state["env_steps"] == returns.sum()
    best = [
        (number + 1, mean)
        for number, mean in enumerate(returns.mean(axis=1))
        if mean > max([0.0, *returns.mean(axis=1)[:number]])
    ]
    assert [tuple(one) for one in state["improvements"]] == best
    np.testing.assert_array_equal(state["best_parameters"], parameters[best[-1][0] - 1])


def test_random_search_solves_cart_pole_within_a_small_budget():
    # About 1.7 % of the draws balance for 475 steps or more (0.015 to 0.019 at 95 % of 20,000), so that 200 of them find none
    # with a probability of 2 to 5 %. Fewer than 18 of 24 seeds would then be a chance of less than 1 in 1,000.
    solved = 0
    for seed in range(24):
        state = searched(task(seed=seed, budget=200, target=475.0))
        solved += state["improvements"][-1][1] >= 475.0
    assert solved >= 18


def test_a_search_ends_at_its_target_and_counts_no_later_candidate():
    whole = searched(task(budget=2_000))
    (first, score) = next((number, score) for number, score in whole["improvements"] if score >= 200)
    early = [searched(task(budget=2_000, target=200.0), blocks=blocks) for blocks in ((1,), (7, 64), (2_000,))]
    assert early[0]["evaluated"] == first and early[0]["improvements"][-1] == [first, score]
    for state in early[1:]:
        assert {**state, "algorithm": None, "best_parameters": None} == {
            **early[0],
            "algorithm": None,
            "best_parameters": None,
        }
        np.testing.assert_array_equal(state["best_parameters"], early[0]["best_parameters"])


@pytest.mark.parametrize(
    "changes", [dict(), dict(policy__kind="mlp", policy__hidden_sizes=[5, 3])], ids=["linear", "mlp"]
)
def test_cores_and_blocks_change_nothing(changes):
    hidden = changes.pop("policy__hidden_sizes", [])

    def one(cores):
        request = assignment(**changes)
        request.policy.hidden_sizes.extend(hidden)
        return search_task(request, cores=cores)

    expected = searched(one(1))
    assert equal(searched(one(3)), expected)
    assert equal(searched(one(2), blocks=(1, 50, 13)), expected)
    assert equal(searched(one(1), blocks=(300,)), expected)


def test_few_candidates_at_a_time_change_nothing():
    one = task(budget=100)
    few = scorer(one)
    few.part = 3
    assert isinstance(few, BatchScorer) and equal(searched(one, scorer=few), searched(one))


@pytest.mark.parametrize("stopped_after", [1, 3])
def test_a_resumed_search_ends_in_the_same_bits(stopped_after):
    one = task(budget=1_000)
    with Search(one) as search:
        for _ in range(stopped_after):
            search.advance()
        state = unpack(encode(search.state()))
    with Search(task(budget=1_000, cores=2)) as resumed:
        resumed.restore(state)
        assert 0 < resumed.progress.evaluated < 1_000
        while not resumed.done:
            resumed.advance()
        assert equal(resumed.state(), searched(one))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda state: state["task"].update(seed=2), "the state of this search"),
        (lambda state: state.pop("evaluated"), "damaged"),
        (lambda state: state["algorithm"].update(state="no generator"), "damaged"),
        (lambda state: state.update(improvements=[["x", 1]]), "damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, match):
    with Search(task()) as search:
        search.advance()
        state = unpack(encode(search.state()))
        change(state)
        with pytest.raises(InvalidArgument, match=match):
            search.restore(state)


def test_other_seeds_search_elsewhere():
    first, second, episodes = searched(task(seed=1)), searched(task(seed=2)), searched(task(episode_seed=5))
    assert first["best_parameters"].tolist() != second["best_parameters"].tolist()
    assert first["env_steps"] != episodes["env_steps"]


def test_simulations_are_searched_as_stock_gymnasium_plays_them():
    def one(cores):
        return task(environment="InvertedPendulum-v5", budget=12, episodes=2, cores=cores)

    parameters = RandomSearch(one(1).policy, seed=1, scale=1.0).ask(12)
    env, means = gymnasium.make("InvertedPendulum-v5"), []
    for vector in parameters:
        policy, returns = policy_of(one(1), vector), []
        for seed in one(1).seeds:
            observation, _ = env.reset(seed=seed)
            rewards, ended = [], False
            while not ended:
                observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
                rewards.append(reward)
                ended = terminated or truncated
            returns.append(np.sum(rewards))
        means.append(np.mean(returns))
    states = [searched(one(cores)) for cores in (1, 2)]
    assert isinstance(Search(one(1))._scorer, BatchScorer)
    assert equal(*states)
    assert states[0]["improvements"][-1] == [int(np.argmax(means)) + 1, max(means)]


def test_a_table_is_searched_where_observations_are_discrete(tmp_path, monkeypatch):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path))
    add_registered("gymnasium:FrozenLake-v1")
    add_registered("gymnasium:Pendulum-v1")
    changes = dict(policy__kind="table", budget=40, episodes=10)
    one = task(environment="gymnasium:FrozenLake-v1", **changes)
    state = searched(one)
    assert isinstance(scorer(one), StockScorer)
    table, env, returns = state["best_parameters"].astype(int), gymnasium.make("FrozenLake-v1"), []
    for seed in one.seeds:
        observation, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(int(table[observation]))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    assert state["improvements"][-1][1] == np.mean(returns) > 0
    # A card does not say whether observations are discrete: it is noticed when a policy acts.
    with pytest.raises(InvalidArgument, match="a table needs discrete observations"):
        searched(task(environment="gymnasium:Pendulum-v1", **changes))


# -- parts


def spec(name: str, seed: int = 0) -> PolicySpec:
    return PolicySpec.of(name, load_card("CartPole-v1"), bias=True, hidden=(6, 5), features=7, seed=seed)


def test_equal_scores_mean_the_first_action_as_an_argmax_does():
    one = task()
    zero = np.zeros((1, 8))
    np.testing.assert_array_equal(scorer(one).score(zero).returns[0], stock_returns(policy_of(one, zero[0]), one.seeds))


def test_draws_do_not_depend_on_the_block_size():
    table = PolicySpec(kind="table", observation_count=9, action_count=3)
    for shape in (spec("linear"), table):
        whole = RandomSearch(shape, seed=5, scale=2.0).ask(100)
        parts = RandomSearch(shape, seed=5, scale=2.0)
        pieces = [parts.ask(count) for count in (1, 2, 40)]
        resumed = RandomSearch(shape, seed=0, scale=2.0)
        resumed.restore(unpack(encode(parts.state())))
        np.testing.assert_array_equal(np.concatenate([*pieces, resumed.ask(57)]), whole)
    assert set(RandomSearch(table, seed=1, scale=1.0).ask(50).ravel()) == {0.0, 1.0, 2.0}


def test_draws_are_normal_and_exact_in_single_precision():
    draws = RandomSearch(spec("linear"), seed=3, scale=2.5).ask(4_000)
    # 40,000 numbers: their mean and deviation are within five standard errors.
    assert abs(draws.mean()) < 5 * 2.5 / math.sqrt(40_000)
    assert abs(draws.std() - 2.5) < 5 * 2.5 / math.sqrt(80_000)
    np.testing.assert_array_equal(draws.astype(np.float32).astype(np.float64), draws)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(algorithm="cma-es"), r"algorithm: .*got 'cma-es'.; expected one of 'random'"),
        (dict(environment="CartPole-v0"), r"environment: unknown environment 'CartPole-v0'; .*CartPole-v1"),
        (dict(environment="PointMaze_Large-v3"), r"environment: .*environment pack robotics run no search"),
        (dict(policy__kind="quadratic"), r"policy\.kind: .*got 'quadratic'.; expected one of mlp, linear"),
        (dict(policy__kind=""), r"policy\.kind: .*got ''.; expected one of mlp, linear"),
        (
            dict(policy__kind="table"),
            r"policy\.kind: .*got 'table'.; expected linear.* a table needs discrete observations",
        ),
        (
            dict(policy__kind="random_features", policy__features=200_000),
            r"policy: .*got 400000.; expected .* at most 200000",
        ),
        (
            dict(policy__kind="random_features", policy__features=-1),
            r"policy\.features: .*got -1.; expected a positive",
        ),
        (
            dict(policy__kind="random_features", policy__seed=-1),
            r"policy\.seed: .*got -1.; expected an integer of at least 0",
        ),
        (dict(budget=0), r"budget: must be .*got 0"),
        (dict(episodes=0), r"episodes: must be .* 10000 .got 0"),
        (dict(episodes=10_001), r"episodes: must be .* 10000 .got 10001"),
        (dict(seed=-1), r"seed: must be greater than or equal to 0 .got -1"),
        (dict(episode_seed=2**63 - 1), r"episode_seed: must be .*got 9223372036854775807"),
        (dict(scale=math.nan), r"scale: must be .*got nan"),
        (dict(scale=-1.0), r"scale: must be .*got -1.0"),
        (dict(scale=1e31), r"scale: must be .*got 1e\+31"),
        (dict(target=math.inf), r"target: must be finite .got inf"),
        (dict(checkpoint_seconds=-1.0), r"checkpoint_seconds: must be .*got -1.0"),
        (dict(options__max_episode_steps=-5), r"options\.max_episode_steps: must be .*got -5"),
        (
            dict(options__reset_noise_scale=0.1),
            r"options\.reset_noise_scale: .*got 0.1.; expected an option of CartPole-v1",
        ),
    ],
)
def test_a_bad_search_names_field_value_and_expectation(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        task(**changes)


def test_a_policy_that_is_never_better_than_nothing_leaves_no_best():
    class NotANumber:
        part, exact = 4, True

        def score(self, parameters):
            return Scores(np.full((len(parameters), 5), np.nan), np.ones((len(parameters), 5), np.int64))

    state = searched(task(budget=9), scorer=NotANumber())
    assert (state["evaluated"], state["improvements"], len(state["best_parameters"])) == (9, [], 0)
