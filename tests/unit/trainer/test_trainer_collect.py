"""A rollout equals the one that Stable-Baselines3 collects under VecNormalize, and members do not mix."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("gymnasium")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters
from dressage_trainer.ppo import snapshot
from dressage_trainer.ppo.members import MemberSpec, group_members, member_streams, pack_generator, unpack_generator
from dressage_trainer.ppo.networks import initial_weights, stack
from dressage_trainer.ppo.ppo import PPO, RolloutCollector
from dressage_trainer.ppo.vec_env import VecEnv
from dressage_trainer.speed.lanes import PpoLanes
from fake_environment import LIMIT, A, D, FakeBatch, FakeReward, OneEnv

T, N = 48, 4
HIDDEN = (8, 8)


class GivenNoise:
    """A generator that hands out a prepared array."""

    def __init__(self, noise):
        self.noise = noise

    def standard_normal(self, size, dtype):
        assert size == self.noise.shape
        return self.noise.astype(dtype)


def test_rollouts_equal_sb3_under_vecnormalize():
    torch = pytest.importorskip("torch")
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.callbacks import ConvertCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.manual_seed(0)
    gamma = 0.9
    env = VecNormalize(DummyVecEnv([lambda row=row: OneEnv(row) for row in range(N)]), gamma=gamma)
    model = sb3.PPO(
        "MlpPolicy", env, n_steps=T, batch_size=T, gamma=gamma, device="cpu",
        policy_kwargs={"activation_fn": torch.nn.Tanh, "net_arch": {"pi": [8, 8], "vf": [8, 8]}},
    )  # fmt: skip
    state = {name: value.numpy() for name, value in model.policy.state_dict().items()}
    weights = {"log_std": state["log_std"]}
    for layer, theirs in {"pi.0": "mlp_extractor.policy_net.0", "pi.1": "mlp_extractor.policy_net.2",
                          "vf.0": "mlp_extractor.value_net.0", "vf.1": "mlp_extractor.value_net.2",
                          "action": "action_net", "value": "value_net"}.items():  # fmt: skip
        for kind in ("weight", "bias"):
            weights[f"{layer}.{kind}"] = state[f"{theirs}.{kind}"]
    given = Hyperparameters(num_envs=N, num_steps=T, hidden_sizes=HIDDEN, discount=gamma)
    batch = VecEnv(
        FakeBatch(1, N), FakeReward(), clips=[10.0], seeds=range(N), normalize_observation=True, dtype=np.float32
    )
    collector = RolloutCollector([MemberSpec("a", given, 0)], batch, [], dtype=np.float32)
    _, callback = model._setup_learn(10_000, ConvertCallback(lambda *_: True))
    for _ in range(2):
        buffer = model.rollout_buffer
        assert model.collect_rollouts(env, callback, buffer, n_rollout_steps=T)
        with torch.no_grad():
            rows = torch.as_tensor(buffer.observations.reshape(T * N, D))
            mean = model.policy.get_distribution(rows).distribution.mean.numpy().reshape(T, N, A)
        collector.generators = [GivenNoise((buffer.actions - mean) / np.exp(state["log_std"]))]
        ours = collector.collect_rollouts({name: value[None] for name, value in weights.items()})
        np.testing.assert_allclose(ours.observations[0], buffer.observations, atol=2e-5)
        np.testing.assert_allclose(ours.actions[0], buffer.actions, atol=2e-5)
        np.testing.assert_allclose(ours.rewards[0], buffer.rewards, atol=2e-5)
        np.testing.assert_allclose(ours.log_probs[0], buffer.log_probs, atol=2e-5)
        np.testing.assert_array_equal(ours.dones[0, :-1], buffer.episode_starts[1:])
        np.testing.assert_allclose(ours.last_observation[0], model._last_obs, atol=2e-5)
    moments = batch.observations.moments
    np.testing.assert_allclose(moments.mean[0], env.obs_rms.mean, atol=1e-7)
    np.testing.assert_allclose(moments.var[0], env.obs_rms.var, atol=1e-7)
    np.testing.assert_allclose(collector.returns.moments.var[0], env.ret_rms.var, atol=1e-7)
    # Both kinds of end must have occurred, or bootstrapping was not tested.
    lengths = np.concatenate([np.diff(np.flatnonzero(row)) for row in ours.dones[0].T])
    assert lengths.min() < LIMIT == lengths.max()


SMALL = Hyperparameters(num_envs=N, num_steps=16, minibatch_size=24, epochs=3, hidden_sizes=HIDDEN, learning_rate=1e-3)


def group(members, *, dtype=np.float64, reward=None):
    environment = FakeBatch(len(members), N)
    lanes = PpoLanes(members, environment=environment, threads=1, dtype=dtype)
    return PPO(members, environment=environment, reward=reward or FakeReward(), optimise=lanes, dtype=dtype)


def policy(ppo, member):
    return snapshot.policy_arrays(ppo, member)


def variants():
    change = lambda **values: Hyperparameters.from_dict(values, base=SMALL)  # noqa: E731
    return [
        MemberSpec("a", SMALL, 1),
        MemberSpec("b", change(epochs=5, discount=0.8, entropy_coef=0.01, observation_clip=0.5, reward_clip=0.3), 2),
        MemberSpec("c", change(learning_rate=1e-2, target_kl=0.003), 3),
    ]


def test_a_member_learns_the_same_alone_and_in_company():
    together = group(variants())
    rows = [together.iterate() for _ in range(3)][-1]
    for index, member in enumerate(variants()):
        alone = group([member])
        own = [alone.iterate() for _ in range(3)][-1][0]
        for name, value in policy(alone, 0).items():
            np.testing.assert_allclose(policy(together, index)[name], value, atol=1e-8, err_msg=name)
        assert own["approx_kl"] == pytest.approx(rows[index]["approx_kl"], abs=1e-8)


def test_training_seeds_differ_and_are_no_evaluation_seeds():
    first, second = member_streams(1, 8), member_streams(2, 8)
    assert first.env_seeds != second.env_seeds
    assert first.env_seeds == member_streams(1, 8).env_seeds
    assert all(2**30 <= seed < 2**31 for seed in first.env_seeds)


def test_generators_survive_packing():
    generator = np.random.default_rng(3)
    generator.standard_normal(5, dtype=np.float32)  # leaves half a word behind
    copy = unpack_generator(pack_generator(generator))
    np.testing.assert_array_equal(
        copy.standard_normal(7, dtype=np.float32), generator.standard_normal(7, dtype=np.float32)
    )


def test_generators_of_earlier_checkpoints_continue():
    # `default_rng(3)` after five float32 normals, as checkpoints hold it that were written by the learner's own packing.
    words = [7696912151437735607, 8532451447757993980, 12034810169469137754, 3375601353159786015, 1, 3441447623]
    generator = unpack_generator(np.array(words, np.uint64))
    assert generator.standard_normal(2, dtype=np.float32).tolist() == [1.677371621131897, -0.7508391737937927]
    generator = np.random.default_rng(3)
    generator.standard_normal(5, dtype=np.float32)
    packed = pack_generator(generator)
    assert packed.dtype == np.uint64
    assert packed.tolist() == words


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["reward", "observation"])
def test_a_broken_member_stops_and_the_others_continue(place, bad):
    broken_rows = slice(N, 2 * N)  # the second member's

    def spoil_terms(call, terms):
        if place == "reward" and call == 20:
            terms["effort"][N + 1] = bad

    def spoil_observation(count, observation):
        if place == "observation" and count == 20:
            observation[broken_rows][2, 1] = bad

    ppo = group(variants(), reward=FakeReward(spoil_terms))
    ppo.env.environment.corrupt = spoil_observation
    before = None
    for update in range(3):
        if update == 1:
            before = policy(ppo, 1)
        rows = ppo.iterate()
    (stop,) = ppo.env.faults.stops.values()
    assert (stop.member, stop.cause, stop.step) == (1, place, 20 * N)
    assert stop.term == ("effort" if place == "reward" else "")
    for name, value in policy(ppo, 1).items():
        assert np.isfinite(value).all(), name
        if not name.startswith("obs_"):
            np.testing.assert_array_equal(value, before[name])
    for index in (0, 2):
        alone = group([variants()[index]])
        for _ in range(3):
            alone.iterate()
        np.testing.assert_allclose(policy(ppo, index)["pi.0.weight"], policy(alone, 0)["pi.0.weight"], atol=1e-8)
        assert rows[index]["value_loss"] is not None
    assert not ppo.env.faults.mask().all()


def test_a_row_whose_reward_raised_stops_its_member_by_the_exception():
    def raising(call, terms):
        if call < 20:
            return {}
        for value in terms.values():
            value[N + 1] = np.nan
        return {N + 1: "ZeroDivisionError: float division by zero (line 5)"}

    ppo = group(variants(), reward=FakeReward(raising))
    ppo.collector.collect_rollouts(ppo.weights)
    ppo.collector.collect_rollouts(ppo.weights)
    (stop,) = ppo.env.faults.stops.values()
    assert (stop.member, stop.cause, stop.term, stop.step) == (1, "reward", "total", 20 * N)
    assert stop.message.endswith("step 80: the reward raised ZeroDivisionError: float division by zero (line 5)")


@pytest.mark.parametrize("bad", [1e160, -1e308])
@pytest.mark.parametrize("place", ["reward", "observation", "first observation"])
def test_a_value_too_large_for_the_statistics_stops_only_its_member(place, bad):
    def spoil_terms(call, terms):
        if place == "reward" and call == 20:
            terms["effort"][N + 1] = bad

    def spoil_observation(count, observation):
        if place == "observation" and count == 20:
            observation[N + 1, 1] = bad

    ppo, undisturbed = group(variants(), reward=FakeReward(spoil_terms)), group(variants())
    environment = ppo.env.environment
    environment.corrupt = spoil_observation
    if place == "first observation":
        environment.start = environment.start.copy()
        environment.start[N + 1, 1] = bad
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(3):
            rows, expected = ppo.iterate(), undisturbed.iterate()
    (stop,) = ppo.env.faults.stops.values()
    step = 0 if place == "first observation" else 20 * N
    what = "returns" if place == "reward" else "observations"
    assert (stop.member, stop.cause, stop.step) == (1, place.split()[-1], step)
    assert f"the running variance of {what} overflowed at environment step {step}" in stop.message
    assert stop.message.endswith(f" was {abs(bad):.3g}")
    statistics = ("collector/observations", "collector/returns", "collector/current")
    for name, value in snapshot.take(ppo).items():
        assert np.isfinite(value).all() or not name.startswith(statistics), name
    for index in (0, 2):
        for name, value in policy(undisturbed, index).items():
            np.testing.assert_array_equal(policy(ppo, index)[name], value, err_msg=name)
        assert snapshot.return_statistics(ppo, index) == snapshot.return_statistics(undisturbed, index)
        assert rows[index]["value_loss"] == expected[index]["value_loss"]


def test_large_values_within_the_statistics_range_stop_no_member():
    def large(call, terms):
        terms["effort"][N + 1] = 1e140

    ppo = group(variants(), reward=FakeReward(large))
    ppo.iterate()
    assert not ppo.env.faults.stops


def test_a_non_finite_gradient_stops_only_its_member():
    # The square of its norm is beyond single precision.
    members = [variants()[0], MemberSpec("x", Hyperparameters.from_dict({"value_coef": 1e30}, base=SMALL), 4)]
    ppo = group(members, dtype=np.float32)
    ppo.iterate()
    (stop,) = ppo.env.faults.stops.values()
    assert (stop.member, stop.cause) == (1, "gradient")
    assert all(np.isfinite(value).all() for value in policy(ppo, 1).values())
    ppo.iterate()
    begun = policy(group(members, dtype=np.float32), 0)
    assert not np.array_equal(policy(ppo, 0)["pi.0.weight"], begun["pi.0.weight"])


@pytest.mark.parametrize("log_std", [-10.0, 5.0])
def test_the_widest_and_the_narrowest_deviation_stay_finite(log_std):
    given = Hyperparameters.from_dict({"initial_log_std": log_std}, base=SMALL)
    learning = group([MemberSpec("a", given, 1)], dtype=np.float32)
    rows = [learning.iterate()[0] for _ in range(5)]
    assert not learning.env.faults.stops
    assert all(row[name] is not None for row in rows for name in ("policy_loss", "approx_kl", "entropy", "grad_norm"))
    assert rows[0]["std"] == pytest.approx(np.exp(log_std), rel=0.1)


def test_snapshot_resumes_to_the_same_bits():
    ppo = group(variants(), dtype=np.float32)
    ppo.iterate()
    kept = snapshot.take(ppo)
    copy = {name: value.copy() for name, value in kept.items()}
    ppo.iterate()
    ppo.iterate()
    for name, value in kept.items():
        np.testing.assert_array_equal(value, copy[name], err_msg=f"{name} changed under the snapshot")
    other = group(variants(), dtype=np.float32)
    snapshot.restore(other, kept)
    other.iterate()
    rows = other.iterate()
    for index in range(3):
        for name, value in policy(ppo, index).items():
            np.testing.assert_array_equal(policy(other, index)[name], value, err_msg=name)
    assert rows[0]["update"] == 3
    foreign = group([MemberSpec("a", Hyperparameters.from_dict({"hidden_sizes": [9]}, base=SMALL), 1)])
    with pytest.raises(InvalidArgument, match="snapshot"):
        snapshot.restore(foreign, kept)


def test_members_are_grouped_by_shape():
    wide = MemberSpec("w", Hyperparameters.from_dict({"hidden_sizes": [32]}, base=SMALL), 0)
    groups = group_members([variants()[0], wide, variants()[1]])
    assert [[m.name for m in members] for members in groups] == [["a", "b"], ["w"]]
    with pytest.raises(InvalidArgument, match="members"):
        PPO([variants()[0], wide], environment=FakeBatch(2, N), reward=FakeReward())


def test_initial_weights_are_orthogonal_with_sb3s_gains():
    weights = initial_weights(
        observation_size=17, action_size=6, hidden_sizes=(64, 32), rng=np.random.default_rng(0), dtype=np.float64
    )
    for name, gain in (("pi.0", 2**0.5), ("vf.1", 2**0.5), ("action", 0.01), ("value", 1.0)):
        w = weights[f"{name}.weight"]
        product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(product, gain**2 * np.eye(len(product)), atol=1e-12)
        assert not weights[f"{name}.bias"].any()
    assert not weights["log_std"].any()
    assert stack([weights, weights])["pi.0.weight"].shape == (2, 64, 17)
