"""Discrete actions: the update equals Stable-Baselines3's, the policy learns, and the bundle acts as trained."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
jax = pytest.importorskip("jax")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.errors import InvalidArgument  # noqa: E402
from dressage.policies import Policy, PolicyCard, load, save_bundle, to_onnx, to_sb3  # noqa: E402
from dressage.training.hyperparameters import Hyperparameters  # noqa: E402
from dressage_trainer.backends.group import action_facts  # noqa: E402
from dressage_trainer.ppo import snapshot  # noqa: E402
from dressage_trainer.ppo.distributions import action_space_of, log_softmax  # noqa: E402
from dressage_trainer.ppo.members import MemberSpec  # noqa: E402
from dressage_trainer.ppo.networks import initial_weights, stack  # noqa: E402
from dressage_trainer.ppo.ppo import PPO, RolloutBuffer, coefficients_of  # noqa: E402
from dressage_trainer.ppo.train_state import initial_adam  # noqa: E402
from dressage_trainer.speed.lanes import PpoLanes  # noqa: E402
from fake_environment import FakeReward, Step  # noqa: E402

T, N, D, K = 32, 4, 5, 3
HIDDEN = (16, 8)
LAYERS = {"pi.0": "mlp_extractor.policy_net.0", "pi.1": "mlp_extractor.policy_net.2", "action": "action_net",
          "vf.0": "mlp_extractor.value_net.0", "vf.1": "mlp_extractor.value_net.2", "value": "value_net"}  # fmt: skip
MEMBERS = [
    dict(learning_rate=3e-3, clip_range=0.2, ent_coef=0.02, vf_coef=0.5, max_grad_norm=0.5, n_epochs=3, gamma=0.9,
         gae_lambda=0.8),
    dict(learning_rate=1e-2, clip_range=0.1, ent_coef=0.0, vf_coef=0.9, max_grad_norm=5.0, n_epochs=2, gamma=0.99,
         gae_lambda=0.95),
]  # fmt: skip


class Sizes:
    """An environment's sizes."""

    observation_size, action_size, num_actions = D, 1, K


def random_rollout(rng):
    as_32 = lambda *shape: rng.standard_normal(shape).astype(np.float32).astype(np.float64)  # noqa: E731
    return {"observations": as_32(T, N, D), "actions": rng.integers(0, K, (T, N, 1)).astype(np.float64),
            "rewards": rng.standard_normal((T, N)), "dones": (rng.random((T, N)) < 0.1).astype(np.float64),
            "last_observation": as_32(N, D)}  # fmt: skip


def sb3_update(settings, data, weights, seed):
    """SB3's weights after one `PPO.train()` on the data, the log probabilities of its buffer, and its orders."""
    torch = pytest.importorskip("torch")
    sb3 = pytest.importorskip("stable_baselines3")

    class Spaces(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (D,))
        action_space = gymnasium.spaces.Discrete(K)

        def reset(self, *, seed=None, options=None):
            return np.zeros(D, np.float32), {}

    env = sb3.common.vec_env.DummyVecEnv([Spaces] * N)
    model = sb3.PPO("MlpPolicy", env, n_steps=T, batch_size=32, device="cpu", **settings,
                    policy_kwargs=dict(activation_fn=torch.nn.Tanh, net_arch=list(HIDDEN)))  # fmt: skip
    model.set_logger(sb3.common.logger.configure(None, []))
    policy, buffer = model.policy.to(torch.float64), model.rollout_buffer
    for name, value in weights.items():
        layer, _, kind = name.rpartition(".")
        policy.state_dict()[f"{LAYERS[layer]}.{kind}"].copy_(torch.as_tensor(value))
    buffer.reset()
    with torch.no_grad():
        rows, chosen = (torch.as_tensor(data[name]).reshape(T * N, -1) for name in ("observations", "actions"))
        values, log_probs, _ = policy.evaluate_actions(rows, chosen.long().flatten())
        last = policy.predict_values(torch.as_tensor(data["last_observation"]))
    buffer.observations, buffer.actions, buffer.rewards = data["observations"], data["actions"], data["rewards"]
    buffer.values, buffer.log_probs = values.numpy().reshape(T, N), log_probs.numpy().reshape(T, N)
    buffer.advantages = np.zeros((T, N))
    buffer.episode_starts = np.concatenate([np.zeros((1, N)), data["dones"][:-1]])
    buffer.pos, buffer.full = T, True
    buffer.compute_returns_and_advantage(last, data["dones"][-1])
    log_probs = buffer.log_probs.copy()
    np.random.seed(seed)
    orders = np.array([np.random.permutation(T * N) for _ in range(settings["n_epochs"])])
    np.random.seed(seed)
    model.train()
    state = {name: value.numpy() for name, value in policy.state_dict().items()}
    return state, log_probs, orders % T * N + orders // T, model.logger.name_to_value


def test_an_update_equals_sb3_for_each_of_two_members(monkeypatch):
    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda obs, *rest, **options: obs)
    rng = np.random.default_rng(3)
    weights = [initial_weights(observation_size=D, action_size=K, hidden_sizes=HIDDEN, initial_log_std=None, rng=rng,
                               dtype=np.float64) for _ in MEMBERS]  # fmt: skip
    data = [random_rollout(rng) for _ in MEMBERS]
    theirs = [sb3_update(MEMBERS[i], data[i], weights[i], seed=i) for i in range(2)]
    orders = [np.concatenate([order, np.tile(np.arange(T * N), (3 - len(order), 1))]) for _, _, order, _ in theirs]
    renamed = {"ent_coef": "entropy_coef", "vf_coef": "value_coef", "n_epochs": "epochs", "gamma": "discount"}
    given = [{renamed.get(name, name): value for name, value in member.items()} for member in MEMBERS]
    shape = dict(num_envs=N, num_steps=T, minibatch_size=32, hidden_sizes=HIDDEN)
    members = [MemberSpec(f"m{i}", Hyperparameters(**shape, **values), i) for i, values in enumerate(given)]
    c = coefficients_of(members, stopped=np.zeros(2, bool), dtype=np.float64)
    with jax.enable_x64(True):
        update = PpoLanes(members, environment=Sizes(), threads=1, dtype=np.float64)
        params = stack(weights)
        assert "log_std" not in params
        rollout = RolloutBuffer(log_probs=np.stack([t[1] for t in theirs]),
                                **{key: np.stack([d[key] for d in data]) for key in data[0]})  # fmt: skip
        arguments = (params, initial_adam(params, 2), rollout, np.stack(orders, 1).astype(np.int32), c)
        ours, _, seen = update(*arguments)
    for row, (state, _, _, logged) in enumerate(theirs):
        for name, value in ours.items():
            layer, _, kind = name.rpartition(".")
            np.testing.assert_allclose(value[row], state[f"{LAYERS[layer]}.{kind}"], rtol=0, atol=1e-8, err_msg=name)
        assert float(seen["entropy"][row]) == pytest.approx(-logged["train/entropy_loss"], abs=1e-6)
        assert float(seen["clip_fraction"][row]) == pytest.approx(logged["train/clip_fraction"], abs=1e-6)


class Guess:
    """Observations name the action that earns 1; episodes last 8 steps. Anyone who looks earns 8."""

    observation_size, action_size, num_actions = K, 1, K
    action_low, action_high = np.zeros(1, np.float32), np.full(1, K - 1, np.float32)

    def __init__(self, rows):
        self.num_envs = rows

    def reset(self, seeds):
        self.rng, self.t = np.random.default_rng(seeds[0]), 0
        return self._show()

    def _show(self):
        self.right = self.rng.integers(0, K, self.num_envs)
        return np.eye(K)[self.right]

    def step(self, actions):
        assert actions.shape == (self.num_envs,) and actions.dtype == np.int64
        assert ((actions >= 0) & (actions < K)).all()
        won = (actions == self.right).astype(np.float64)
        self.t += 1
        ended = np.full(self.num_envs, self.t % 8 == 0)
        shown = self._show()
        after = np.stack([won, won], 1)
        return Step(shown, shown, won, ended, np.zeros(self.num_envs, bool), after, after)


@dataclass
class Won:
    total: np.ndarray
    terms: dict


class WinReward(FakeReward):
    def __call__(self, state, action, next_state):
        return Won(next_state[:, 0], {"won": next_state[:, 0]})


SMALL = Hyperparameters(num_envs=8, num_steps=32, minibatch_size=64, epochs=4, learning_rate=5e-3, hidden_sizes=(16, 16),
                        normalize_observation=False, normalize_reward=False)  # fmt: skip


@pytest.fixture(scope="module")
def trained():
    ppo = PPO([MemberSpec("a", SMALL, 1), MemberSpec("b", SMALL, 2)], environment=Guess(16), reward=WinReward())
    return ppo, [ppo.iterate() for _ in range(14)]


def test_it_learns_and_its_entropy_falls_from_the_uniform_one(trained):
    _, rows = trained
    for member in range(2):
        first, last = rows[0][member], rows[-1][member]
        assert first["entropy"] == pytest.approx(np.log(K), abs=0.05)
        assert last["entropy"] < 0.5 * first["entropy"]
        assert first["episode_return"] < 4.5 < 7.0 < last["episode_return"]
        assert "std" not in last


def test_log_probabilities_are_those_of_the_actions(trained):
    ppo, _ = trained
    rollout = ppo.collector.collect_rollouts(ppo.weights)
    for member in range(2):
        x = rollout.observations[member]
        w = snapshot.policy_arrays(ppo, member)
        for layer in ("pi.0", "pi.1"):
            x = np.tanh(x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"])
        log_p = log_softmax(x @ w["action.weight"].T + w["action.bias"])
        chosen = np.take_along_axis(log_p, rollout.actions[member].astype(int), -1)[..., 0]
        np.testing.assert_allclose(rollout.log_probs[member], chosen, atol=1e-5)


def bundle(ppo, path):
    weights = snapshot.policy_arrays(ppo, 0)
    card = PolicyCard(environment="Guess-v0", observation_size=K, hidden_sizes=(16, 16), normalize_observation=False,
                      **action_facts(ppo.env.environment))  # fmt: skip
    return load(save_bundle(path, weights=weights, card=card))


def test_the_bundle_acts_and_exports(trained, tmp_path):
    policy: Policy = bundle(trained[0], tmp_path / "policy")
    rows = np.eye(K)[[0, 2, 1, 1]]
    np.testing.assert_array_equal(policy.act(rows), [0, 2, 1, 1])
    assert policy.act(rows[0]).shape == ()
    assert policy.card["action"] == {"kind": "discrete", "num_actions": K}
    assert load(tmp_path / "policy").description == policy.description
    runtime = pytest.importorskip("onnxruntime")
    many = np.random.default_rng(0).standard_normal((100, K)).astype(np.float32)
    session = runtime.InferenceSession(str(to_onnx(policy, tmp_path / "p.onnx")), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(["action"], {"observation": many})[0], policy.act(many))
    sb3 = pytest.importorskip("stable_baselines3")
    file, _ = to_sb3(policy, tmp_path / "sb3")
    model = sb3.PPO.load(file, device="cpu")
    np.testing.assert_array_equal(model.predict(many, deterministic=True)[0], policy.act(many))


@pytest.mark.parametrize(("size", "count"), [(2, 3), (1, 1)])
def test_impossible_spaces_are_refused(size, count):
    environment = Guess(4)
    environment.action_size, environment.num_actions = size, count
    with pytest.raises(InvalidArgument, match="num_actions"):
        action_space_of(environment)
