"""A whole PPO update equals Stable-Baselines3's `PPO.train()` in every weight."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
gymnasium = pytest.importorskip("gymnasium")
jax = pytest.importorskip("jax")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.training.hyperparameters import Hyperparameters  # noqa: E402
from dressage_trainer.ppo.members import MemberSpec  # noqa: E402
from dressage_trainer.ppo.networks import initial_weights, stack  # noqa: E402
from dressage_trainer.ppo.ppo import RolloutBuffer, coefficients_of, compute_returns_and_advantage  # noqa: E402
from dressage_trainer.ppo.train_state import initial_adam  # noqa: E402
from dressage_trainer.speed.lanes import PpoLanes  # noqa: E402
from sb3_twin import torch_name  # noqa: E402

T, N, D, A = 48, 4, 7, 3
HIDDEN = (16, 8)
# Unequal on purpose: each member must use its own.
MEMBERS = [
    dict(learning_rate=3e-3, clip_range=0.2, ent_coef=0.0, vf_coef=0.5, max_grad_norm=0.5, target_kl=None,
         n_epochs=4, gamma=0.99, gae_lambda=0.95),
    dict(learning_rate=1e-3, clip_range=0.1, ent_coef=0.02, vf_coef=0.9, max_grad_norm=5.0, target_kl=None,
         n_epochs=3, gamma=0.9, gae_lambda=0.8),
    dict(learning_rate=1e-2, clip_range=0.3, ent_coef=0.01, vf_coef=0.2, max_grad_norm=0.1, target_kl=0.01,
         n_epochs=4, gamma=1.0, gae_lambda=1.0),
]  # fmt: skip


class _Spaces(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (D,))
    action_space = gymnasium.spaces.Box(-1, 1, (A,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(D, np.float32), {}

    def step(self, action):
        return np.zeros(D, np.float32), 0.0, False, False, {}


def random_rollout(rng):
    """Rows as a rollout would give them; actions and observations are float32 values, since SB3 casts them."""
    as_32 = lambda *shape: rng.standard_normal(shape).astype(np.float32).astype(np.float64)  # noqa: E731
    return {
        "observations": as_32(T, N, D),
        "actions": as_32(T, N, A),
        "rewards": rng.standard_normal((T, N)),
        "dones": (rng.random((T, N)) < 0.1).astype(np.float64),
        "last_observation": as_32(N, D),
    }


@pytest.fixture(autouse=True)
def keep_float64(monkeypatch):
    """SB3 casts observations to float32; without that its own code runs in float64."""
    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda obs, *rest, **options: obs)


class Reference:
    """One member trained by SB3 on given data."""

    def __init__(self, index, data, weights, minibatch_size, dtype, updates):
        settings = MEMBERS[index]
        env = sb3.common.vec_env.DummyVecEnv([_Spaces] * N)
        self.model = sb3.PPO(
            "MlpPolicy", env, n_steps=T, batch_size=minibatch_size, device="cpu", **settings,
            policy_kwargs=dict(activation_fn=torch.nn.Tanh, net_arch=dict(pi=list(HIDDEN), vf=list(HIDDEN))),
        )  # fmt: skip
        self.model.set_logger(sb3.common.logger.configure(None, []))
        policy = self.model.policy
        policy.to(torch.float64 if dtype == np.float64 else torch.float32)
        state = policy.state_dict()
        for name, value in weights.items():
            state[torch_name(name)].copy_(torch.as_tensor(value))
        self.log_probs, self.orders = [], []
        for update in range(updates):
            self._fill(data[update], dtype)
            np.random.seed(100 * index + update)
            self.orders.append(np.array([np.random.permutation(T * N) for _ in range(settings["n_epochs"])]))
            np.random.seed(100 * index + update)
            self.model.train()

    def _fill(self, data, dtype):
        buffer, policy = self.model.rollout_buffer, self.model.policy
        buffer.reset()
        with torch.no_grad():
            as_tensor = lambda name: torch.as_tensor(data[name].astype(dtype))  # noqa: E731
            obs, act = as_tensor("observations"), as_tensor("actions")
            values, log_probs, _ = policy.evaluate_actions(obs.reshape(-1, D), act.reshape(-1, A))
            last_values = policy.predict_values(as_tensor("last_observation"))
        buffer.observations = data["observations"].astype(dtype)
        buffer.actions = data["actions"].astype(dtype)
        buffer.rewards = data["rewards"].astype(dtype)
        buffer.values = values.numpy().reshape(T, N)
        buffer.log_probs = log_probs.numpy().reshape(T, N)
        buffer.advantages = np.zeros((T, N), dtype)
        starts = np.zeros((T, N), dtype)
        starts[1:] = data["dones"][:-1]
        buffer.episode_starts = starts
        buffer.pos, buffer.full = T, True
        buffer.compute_returns_and_advantage(last_values, data["dones"][-1].astype(dtype))
        self.log_probs.append(buffer.log_probs.copy())
        self.advantages, self.returns = buffer.advantages.copy(), buffer.returns.copy()

    def weights(self):
        return {name: value.numpy() for name, value in self.model.policy.state_dict().items()}


class Sizes:
    """An environment's sizes."""

    observation_size, action_size = D, A


def specs(indices, minibatch_size):
    """Our members with SB3's settings."""
    renamed = {"ent_coef": "entropy_coef", "vf_coef": "value_coef", "n_epochs": "epochs", "gamma": "discount"}
    given = [{renamed.get(name, name): value for name, value in MEMBERS[i].items()} for i in indices]
    shape = dict(num_envs=N, num_steps=T, minibatch_size=minibatch_size, hidden_sizes=HIDDEN)
    return [
        MemberSpec(f"m{i}", Hyperparameters(**shape, **values), i) for i, values in zip(indices, given, strict=True)
    ]


def our_orders(reference):
    """SB3 flattens environment by environment, we step by step; pad to the group's most epochs."""
    orders = reference % T * N + reference // T
    padding = np.tile(np.arange(T * N), (4 - len(orders), 1))
    return np.concatenate([orders, padding]).astype(np.int32)


def run_ours(indices, data, weights, references, minibatch_size, dtype, updates, threads):
    members = specs(indices, minibatch_size)
    size = len(members) if threads == 1 else 1  # a stack, or lanes
    update = PpoLanes(members, environment=Sizes(), threads=threads, size=size, dtype=dtype)
    take = np.array(indices)
    params = {n: w[take].astype(dtype) for n, w in stack(weights).items()}
    adam = initial_adam(params, len(take))
    c = coefficients_of(members, stopped=np.zeros(len(members), bool), dtype=dtype)
    for step in range(updates):
        rollout = RolloutBuffer(
            log_probs=np.stack([references[i].log_probs[step] for i in indices]).astype(dtype),
            **{key: np.stack([data[i][step][key] for i in indices]).astype(dtype) for key in data[0][0]},
        )
        orders = np.stack([our_orders(references[i].orders[step]) for i in indices], axis=1)
        params, adam, seen = update(params, adam, rollout, orders, c)
    return {n: np.asarray(w) for n, w in params.items()}, seen


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")  # a smaller last one is meant
@pytest.mark.parametrize(
    ("dtype", "tolerance", "minibatch_size", "groups"),
    [
        (np.float64, 1e-8, 64, (([0], 1), ([0, 1, 2], 1), ([0, 1, 2], 2))),
        (np.float32, 1e-4, 64, (([0], 1), ([0, 1, 2], 1))),
        (np.float64, 1e-8, 60, (([0, 1, 2], 1),)),
    ],
    ids=["f64", "f32", "f64-last-minibatch-smaller"],
)
def test_two_updates_equal_sb3_alone_and_stacked(dtype, tolerance, minibatch_size, groups):
    updates = 2
    rng = np.random.default_rng(3)
    weights = [
        initial_weights(observation_size=D, action_size=A, hidden_sizes=HIDDEN, rng=rng, dtype=dtype) for _ in MEMBERS
    ]
    data = [[random_rollout(rng) for _ in range(updates)] for _ in MEMBERS]
    references = [Reference(i, data[i], weights[i], minibatch_size, dtype, updates) for i in range(len(MEMBERS))]
    with jax.enable_x64(dtype == np.float64):
        for indices, threads in groups:
            ours, seen = run_ours(indices, data, weights, references, minibatch_size, dtype, updates, threads)
            for row, index in enumerate(indices):
                expected = references[index].weights()
                for name, value in ours.items():
                    np.testing.assert_allclose(
                        value[row], expected[torch_name(name)], rtol=0, atol=tolerance, err_msg=f"{index} {name}"
                    )
            assert not np.any(seen["not_finite"])
    if len(indices) == 3:
        # The third member must have stopped by KL, or the test does not cover stopping.
        full = 4 * -(-T * N // minibatch_size)
        assert float(seen["steps"][2]) < full == float(seen["steps"][0])
        logged = references[0].model.logger.name_to_value
        names = {"policy_loss": "policy_gradient_loss"}
        for ours_name in ("value_loss", "policy_loss", "clip_fraction", "explained_variance"):
            theirs = names.get(ours_name, ours_name)
            assert float(seen[ours_name][0]) == pytest.approx(logged[f"train/{theirs}"], abs=1e-4)
        assert float(seen["entropy"][0]) == pytest.approx(-logged["train/entropy_loss"], abs=1e-5)


def test_advantages_equal_sb3():
    rng = np.random.default_rng(5)
    weights = initial_weights(observation_size=D, action_size=A, hidden_sizes=HIDDEN, rng=rng, dtype=np.float64)
    data = random_rollout(rng)
    reference = Reference(1, [data], weights, 64, np.float64, 0)
    reference._fill(data, np.float64)
    values = reference.model.rollout_buffer.values
    with torch.no_grad():
        last = reference.model.policy.predict_values(torch.as_tensor(data["last_observation"])).numpy()[:, 0]
    with jax.enable_x64(True):
        returns, advantages = compute_returns_and_advantage(
            data["rewards"], values, data["dones"], last, discount=0.9, gae_lambda=0.8
        )
    np.testing.assert_allclose(advantages, reference.advantages, atol=1e-12)
    np.testing.assert_allclose(returns, reference.returns, atol=1e-12)
