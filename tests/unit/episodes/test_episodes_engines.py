"""Whole episodes of the engines equal `StockPlayer`'s, and depend on candidate and seed only."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from dressage.envs.cards import load_card
from dressage.envs.options import EnvOptions
from dressage.envs.reference import StockPlayer
from dressage.episodes import compiled, simulated
from dressage.episodes.choice import acts_alike, episode_engine
from dressage.episodes.compiled import CompiledEpisodes
from dressage.episodes.simulated import SimulatedEpisodes
from dressage.errors import InvalidArgument
from dressage.policies import Policy
from dressage.policies.kinds import PolicySpec, kind
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = (3, 11, 0, 2**40, 11)


def spec_of(env_id: str, name: str = "linear", **sizes) -> PolicySpec:
    return PolicySpec.of(name, load_card(env_id), **sizes)


def candidates(spec: PolicySpec, count: int, scale: float = 1.0) -> np.ndarray:
    rng, size = np.random.default_rng(1), kind(spec.kind).size(spec)
    if choices := kind(spec.kind).choices(spec):
        return rng.integers(choices, size=(count, size)).astype(np.float64)
    return scale * rng.standard_normal((count, size)).astype(np.float32).astype(np.float64)


def policy(env_id: str, spec: PolicySpec, vector) -> Policy:
    chosen = kind(spec.kind)
    return Policy(weights=chosen.weights(spec, vector), card=chosen.card(spec, environment=env_id))


def stock(env_id: str, spec: PolicySpec, vectors, options=None):
    """Return returns and lengths (P, E) on stock Gymnasium, each policy acting alone."""
    with StockPlayer(env_id, options) as player:
        played = [[player.play(policy(env_id, spec, vector).act, seed) for seed in SEEDS] for vector in vectors]
    returns = np.array([[one.stock_return for one in row] for row in played])
    return returns, np.array([[one.length for one in row] for row in played])


COMPILED = [
    ("CartPole-v1", "linear"),
    ("MountainCar-v0", "linear"),
    ("MountainCarContinuous-v0", "linear"),
    ("FrozenLake-v1", "table"),
    ("FrozenLake-v1", "linear"),
    ("Nim-v0", "table"),
    ("Pong5-v0", "linear"),
    ("Maze3x3-v0", "table"),
    ("NoiseWorld4-v0", "linear"),
]


@pytest.mark.parametrize(("env_id", "name"), COMPILED)
def test_compiled_episodes_are_stock_episodes_to_the_bit(env_id, name):
    spec = spec_of(env_id, name)
    vectors = candidates(spec, 6)
    played = CompiledEpisodes(env_id, spec, SEEDS).play(vectors)
    returns, lengths = stock(env_id, spec, vectors)
    np.testing.assert_array_equal(played.returns, returns)
    np.testing.assert_array_equal(played.lengths, lengths)
    assert acts_alike(spec)


def test_a_good_policy_plays_whole_episodes():
    spec = spec_of("CartPole-v1", bias=False)
    vector = np.array([[0.0, -0.1, -1.0, -1.0, 0.0, 0.1, 1.0, 1.0]])
    played = CompiledEpisodes("CartPole-v1", spec, range(30)).play(vector)
    returns, lengths = stock("CartPole-v1", spec, vector)
    np.testing.assert_array_equal(CompiledEpisodes("CartPole-v1", spec, SEEDS).play(vector).returns, returns)
    assert lengths.max() == 500 and np.median(played.returns) == 500


@pytest.mark.parametrize("env_id", ["InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Swimmer-v5", "Ant-v5"])
def test_simulated_episodes_are_stock_episodes_to_the_bit(env_id):
    spec, options = spec_of(env_id), EnvOptions(max_episode_steps=60)
    vectors = candidates(spec, 4, 0.3)
    played = SimulatedEpisodes(env_id, spec, SEEDS, options, threads=2, rows=7).play(vectors)
    returns, lengths = stock(env_id, spec, vectors, options)
    np.testing.assert_array_equal(played.returns, returns)
    np.testing.assert_array_equal(played.lengths, lengths)
    assert len(set(lengths.ravel())) > 1 or env_id == "Swimmer-v5"


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Swimmer-v5"])
def test_simulated_episodes_are_stock_episodes_to_the_end(env_id):
    spec = spec_of(env_id)
    # A policy that balances for long, and one that swims.
    good = {
        "InvertedPendulum-v5": [0.3, 4.0, 0.4, 0.6, 0.0],
        "InvertedDoublePendulum-v5": [0, -0.1, 0, 0, 0, 0, 0, 0, 0, 0],
        "Swimmer-v5": np.random.default_rng(0).normal(size=18) * 2,
    }[env_id]
    played = SimulatedEpisodes(env_id, spec, SEEDS, rows=3).play(np.array([good]).astype(np.float32).astype(float))
    returns, lengths = stock(env_id, spec, np.array([good]).astype(np.float32).astype(float))
    np.testing.assert_array_equal(played.returns, returns)
    np.testing.assert_array_equal(played.lengths, lengths)


@pytest.mark.parametrize("name", ["mlp", "random_features", "projected_mlp"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCarContinuous-v0"])
def test_networks_act_as_their_policies_do_within_rounding(env_id, name):
    spec = spec_of(env_id, name, hidden=(6, 5))
    vectors = candidates(spec, 5)
    played = CompiledEpisodes(env_id, spec, SEEDS, EnvOptions(max_episode_steps=40)).play(vectors)
    returns, lengths = stock(env_id, spec, vectors, EnvOptions(max_episode_steps=40))
    np.testing.assert_allclose(played.returns, returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(played.lengths, lengths)
    assert not acts_alike(spec) and np.ptp(returns) > 0


@pytest.mark.parametrize(
    ("env_id", "name"),
    [("CartPole-v1", "mlp"), ("MountainCarContinuous-v0", "projected_mlp"), ("Nim-v0", "table")],
)
def test_a_row_does_not_depend_on_the_others_or_on_threads(env_id, name):
    spec = spec_of(env_id, name, hidden=(7,))
    vectors = candidates(spec, 12)
    engine = CompiledEpisodes(env_id, spec, SEEDS)
    together = engine.play(vectors)
    with ThreadPoolExecutor(3) as pool:
        alone = list(pool.map(lambda vector: CompiledEpisodes(env_id, spec, SEEDS).play(vector[None]), vectors))
    np.testing.assert_array_equal(np.concatenate([one.returns for one in alone]), together.returns)
    turned = CompiledEpisodes(env_id, spec, SEEDS[::-1]).play(vectors[::-1])
    np.testing.assert_array_equal(turned.returns[::-1, ::-1], together.returns)


def test_a_simulated_row_does_not_depend_on_batch_or_threads():
    spec, options = spec_of("InvertedPendulum-v5"), EnvOptions(max_episode_steps=50)
    vectors = candidates(spec, 9)
    shapes = [(1, 64), (2, 64), (1, 4), (2, 1)]
    engines = [SimulatedEpisodes("InvertedPendulum-v5", spec, SEEDS, options, threads=t, rows=r) for t, r in shapes]
    first, *others = [engine.play(vectors) for engine in engines]
    for other in others:
        np.testing.assert_array_equal(other.returns, first.returns)
    # The same engine again, with fewer and with more candidates than before.
    np.testing.assert_array_equal(engines[2].play(vectors[3:5]).returns, first.returns[3:5])
    np.testing.assert_array_equal(engines[0].play(np.repeat(vectors, 3, axis=0)).returns[::3], first.returns)


def test_memory_for_random_numbers_is_bounded(monkeypatch):
    spec = spec_of("FrozenLake-v1", "table")
    vectors, seeds = candidates(spec, 4), range(23)
    whole = CompiledEpisodes("FrozenLake-v1", spec, seeds).play(vectors)
    monkeypatch.setattr(compiled, "_MAX_DRAWS", 500)  # five episodes at a time
    parts = CompiledEpisodes("FrozenLake-v1", spec, seeds).play(vectors)
    np.testing.assert_array_equal(parts.returns, whole.returns)
    np.testing.assert_array_equal(parts.lengths, whole.lengths)


@pytest.mark.parametrize("env_id", ["MountainCarContinuous-v0", "Swimmer-v5"])
def test_an_action_that_is_not_a_number_is_refused(env_id):
    spec = spec_of(env_id)
    vector = np.full((1, kind("linear").size(spec)), 3e38)
    vector[0, ::2] = -3e38  # infinities of both signs
    engine = episode_engine(env_id, spec, (0,), EnvOptions(max_episode_steps=400))
    scaled = vector if env_id == "Swimmer-v5" else np.array([[3e38, 3e38, np.inf]])
    if env_id == "Swimmer-v5":
        engine.play(candidates(spec, 1))
        with pytest.raises(InvalidArgument, match="finite"):
            engine.play(np.full_like(scaled, np.nan))
    else:
        with pytest.raises(InvalidArgument, match="finite"):
            engine.play(scaled)


def test_options_and_errors_are_those_of_stock_gymnasium():
    spec = spec_of("CartPole-v1")
    played = CompiledEpisodes("CartPole-v1", spec, SEEDS, EnvOptions(max_episode_steps=7)).play(candidates(spec, 3))
    assert played.lengths.max() == 7
    with pytest.raises(InvalidArgument, match=r"options\.reset_noise_scale"):
        CompiledEpisodes("CartPole-v1", spec, SEEDS, EnvOptions(reset_noise_scale=1.0))
    with pytest.raises(InvalidArgument, match="shape"):
        CompiledEpisodes("CartPole-v1", spec, SEEDS).play(np.zeros((2, 3)))


def test_environments_without_rules_or_exact_arithmetic_have_no_engine(monkeypatch):
    assert episode_engine("Swimmer-v5", PolicySpec(kind="table", observation_count=3, action_count=2), (0,)) is None
    spec = spec_of("CartPole-v1")
    assert episode_engine("gymnasium:Other-v0", spec, (0,)) is None
    monkeypatch.setattr(compiled, "_same_function", lambda name: name != "cos")
    assert episode_engine("CartPole-v1", spec, (0,)) is None
    assert episode_engine("MountainCar-v0", spec_of("MountainCar-v0"), (0,)) is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=1500))
def test_returns_are_summed_as_numpy_sums(values):
    from dressage.episodes.numerics import pairwise_sum

    array = np.array(values)
    assert pairwise_sum(array, len(array)) == np.sum(array)


@given(st.lists(st.one_of(st.floats(width=32), st.just(math.nan)), min_size=1, max_size=8))
def test_the_choice_is_numpys_argmax(values):
    from dressage.episodes.numerics import first_largest

    array = np.array(values, np.float32)
    assert first_largest(array, len(array)) == int(np.argmax(array))


def test_the_rewards_of_a_batch_are_bounded():
    engine = SimulatedEpisodes("Swimmer-v5", spec_of("Swimmer-v5"), SEEDS, EnvOptions(max_episode_steps=1_000_000))
    assert engine._rows * 1_000_000 <= simulated._MAX_REWARDS
