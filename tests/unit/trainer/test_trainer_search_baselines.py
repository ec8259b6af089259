"""Baselines of Stable-Baselines3: their results are the library's own, and so is the number of episodes the peer's."""

from __future__ import annotations

import importlib.util

import gymnasium
import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.installation import install_command
from dressage.policies.sb3_baselines import BASELINES, training_episodes
from dressage_trainer.assignments.requests import search_task
from dressage_trainer.search.baselines import BaselineSearch, TrainingEnv, make_model, vector_of
from dressage_trainer.search.messages import SearchTask
from dressage_trainer.search.process import search as search_process
from dressage_trainer.search.scoring import policy_of

from tests.unit.trainer.test_trainer_search import assignment, stock_returns

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")
DISCRETE = [name for name, one in BASELINES.items() if one.discrete]
CONTINUOUS = [name for name, one in BASELINES.items() if one.continuous]


def task(name: str, *, environment="CartPole-v1", hidden=(), cores=1, **changes) -> SearchTask:
    own = BASELINES[name]
    form = {"policy__kind": "mlp", "policy__activation": own.activation, "policy__squash": own.squash}
    request = assignment(environment=environment, algorithm=name, **{"budget": 8, "episodes": 4, **form, **changes})
    request.policy.hidden_sizes.extend(hidden)
    return search_task(request, cores=cores)


def trained(one: SearchTask):
    """The search after its end, and its improvements."""
    improvements, boundaries = [], []
    with BaselineSearch(one) as baseline:
        baseline.run(
            on_improvement=improvements.append, boundary=lambda: boundaries.append(baseline.progress.evaluated)
        )
        assert baseline.done and boundaries == list(range(1, baseline.progress.evaluated + 1))
        return baseline.progress, improvements


def test_the_episodes_are_those_that_the_peer_counts():
    assert training_episodes(budget=200, episodes=20) == 190
    assert training_episodes(budget=400, episodes=20) == 380


@pytest.mark.parametrize(
    ("name", "environment"),
    [(name, "CartPole-v1") for name in DISCRETE] + [(name, "InvertedPendulum-v5") for name in CONTINUOUS],
)
def test_the_delivered_policy_acts_as_the_librarys_own(name, environment):
    one = task(name, environment=environment)
    env = TrainingEnv(one)
    model = make_model(one, env, training_steps=500)
    model.learn(150)
    rows = np.random.default_rng(0).standard_normal((400, env.observation_space.shape[0])).astype(np.float32)
    expected, _ = model.predict(rows, deterministic=True)
    actions = policy_of(one, vector_of(name, model)).act(rows)
    assert len(np.unique(np.round(expected, 3))) > 1
    if env.action_space.shape == ():
        assert (actions == expected).mean() > 0.99  # scores may tie within rounding
    else:
        np.testing.assert_allclose(actions, expected, atol=1e-5)


def test_a_baseline_trains_as_the_library_used_directly():
    """The library's own environment, callback and evaluation loop."""
    from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes

    one = task("sb3_a2c", budget=20, episodes=4)
    progress, improvements = trained(one)
    assert progress.evaluated == 16 == training_episodes(budget=20, episodes=4)
    torch.set_num_threads(1)
    model = sb3.A2C("MlpPolicy", gymnasium.make("CartPole-v1"), seed=one.seed, device="cpu")
    steps, scores = [], []

    class Evaluating(StopTrainingOnMaxEpisodes):
        def _on_step(self):
            if self.locals["dones"][0]:
                returns = stock_returns(policy_of(one, vector_of("sb3_a2c", model)), one.seeds)
                steps.append(self.num_timesteps - sum(steps))
                scores.append(returns)
            return super()._on_step()

    model.learn(16 * 500, callback=Evaluating(max_episodes=16))
    means = [float(np.mean(returns)) for returns in scores]
    best = [(n + 1, mean) for n, mean in enumerate(means) if mean > max([-np.inf, *means[:n]])]
    assert list(progress.improvements) == best and len(best) >= 2
    assert progress.env_steps == sum(steps) + sum(map(sum, scores))
    assert [(better.evaluated, better.score) for better in improvements] == best
    np.testing.assert_array_equal(progress.best_parameters, improvements[-1].parameters)


def test_a_restarted_baseline_ends_in_the_same_result_on_any_cores():
    first, second = trained(task("sb3_dqn")), trained(task("sb3_dqn", cores=2))
    assert first[0].improvements == second[0].improvements and first[0].env_steps == second[0].env_steps
    np.testing.assert_array_equal(first[0].best_parameters, second[0].best_parameters)
    other = trained(task("sb3_dqn", seed=2))[0]
    assert not np.array_equal(other.best_parameters, first[0].best_parameters)


def test_a_baseline_ends_at_its_target():
    progress, _ = trained(task("sb3_ppo", target=5.0))
    assert progress.evaluated == 1 and progress.best_score >= 5.0


def test_layers_of_other_sizes_are_delivered_too():
    one = task("sb3_ppo", hidden=(7,))
    model = make_model(one, TrainingEnv(one), training_steps=100)
    assert vector_of("sb3_ppo", model).shape == (4 * 7 + 7 + 7 * 2 + 2,)
    assert task("sb3_td3", environment="Swimmer-v5").policy.hidden == (400, 300)


def test_the_default_hyperparameters_are_the_librarys():
    one = task("sb3_dqn")
    model = make_model(one, TrainingEnv(one), training_steps=3_000)
    default = sb3.DQN("MlpPolicy", "CartPole-v1")
    for name in (
        "learning_rate",
        "batch_size",
        "gamma",
        "train_freq",
        "exploration_fraction",
        "target_update_interval",
    ):
        assert getattr(model, name) == getattr(default, name)
    assert (model.buffer_size, default.buffer_size) == (3_000, 1_000_000)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sb3_dqn", dict(environment="Swimmer-v5"), "algorithm: .*'sb3_a2c'.*Swimmer-v5 has continuous actions"),
        ("sb3_sac", dict(), "algorithm: .*got 'sb3_sac'.; expected one of 'sb3_dqn'.*CartPole-v1 has discrete actions"),
        ("sb3_ppo", dict(policy__kind="linear"), "policy.kind: .*got 'linear'.; expected 'mlp' for sb3_ppo"),
        ("sb3_dqn", dict(policy__activation="tanh"), "policy.activation: .*expected 'relu' for sb3_dqn"),
        ("sb3_ppo", dict(budget=1), "budget: .*got 1.; expected at least 2"),
        ("sb3_ppo", dict(hidden=(1_000, 1_000)), "policy: .*at most 200000 parameters"),
    ],
)
def test_what_cannot_be_delivered_is_refused(name, changes, message):
    with pytest.raises(InvalidArgument, match=message):
        task(name, **changes)


class Recording:
    """A channel that delivers one request and keeps what is sent."""

    def __init__(self, request):
        self._requests, self.sent = [request], []

    def recv(self, *, timeout):
        from dressage.errors import DeadlineExceeded

        if not self._requests:
            raise DeadlineExceeded("nothing")
        return self._requests.pop()

    def send(self, message):
        self.sent.append(message)


def test_a_missing_package_names_the_remedy(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "sb3_contrib" else real(name, *rest)
    )
    channel = Recording({"task": task("sb3_trpo").to_dict(), "state": None, "checkpoint_seconds": 60.0})
    search_process(channel)
    (refused,) = channel.sent
    assert refused["type"] == "RefusalMessage" and refused["reason"] == "MISSING_PACKAGE"
    assert refused["message"].startswith("algorithm: sb3_trpo needs sb3_contrib")
    assert install_command("sb3") in refused["message"]
