"""SAC's gradient steps equal Stable-Baselines3's `SAC.train()` in every weight, alone, stacked and in lanes."""

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

from dressage.training import sac as settings  # noqa: E402
from dressage_trainer.ppo.members import MemberSpec  # noqa: E402
from dressage_trainer.sac.replay import Transitions  # noqa: E402
from dressage_trainer.sac.sac import (  # noqa: E402
    Minibatches,
    coefficients_of,
    first_state,
    optimise_together,
    update_function,
)
from dressage_trainer.speed.lanes import SacLanes  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

G, B, D, A = 5, 24, 7, 3
# Unequal on purpose: each member must use its own.
MEMBERS = [
    {"learning_rate": 3e-3, "discount": 0.99},
    {"learning_rate": 1e-2, "discount": 0.9, "target_rate": 0.05},
    {"learning_rate": 1e-3, "entropy_coef": 0.2},
]


class _Spaces(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (D,))
    action_space = gymnasium.spaces.Box(-1, 1, (A,))


class Sizes:
    """An environment's sizes."""

    observation_size, action_size = D, A


def members(indices):
    shape = {"num_envs": G, "minibatch_size": B, "hidden_sizes": (16, 8)}
    return [MemberSpec(f"m{i}", settings.complete({**shape, **MEMBERS[i]}), i) for i in indices]


def minibatches(rng):
    """G minibatches of each member, as from a replay buffer, with some episodes that ended."""
    normal = lambda *shape: rng.standard_normal((G, len(MEMBERS), B, *shape))  # noqa: E731
    transitions = Transitions(
        normal(D), np.tanh(normal(A)), normal(D), 3.0 * normal(), (normal() > 1.0).astype(np.float64)
    )
    return Minibatches(transitions, normal(A), normal(A))


def torch_names(weights):
    """SB3's names of our actor's or critics' weights."""
    rename = {"action": "mu", "q0.value": "qf0.4", "q1.value": "qf1.4", "log_std": "log_std"}
    rename |= {f"pi.{k}": f"latent_pi.{2 * k}" for k in (0, 1)}
    rename |= {f"q{critic}.{k}": f"qf{critic}.{2 * k}" for critic in (0, 1) for k in (0, 1)}
    return {name: f"{rename[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}" for name in weights}


def reference(index, state, batches, patch):
    """The model of SB3 after the same gradient steps on the same minibatches with the same noise."""
    values = {"gamma": 0.99, "tau": MEMBERS[index].get("target_rate", 0.005)}
    values["gamma"] = MEMBERS[index].get("discount", 0.99)
    model = sb3.SAC(
        "MlpPolicy", sb3.common.vec_env.DummyVecEnv([_Spaces]), device="cpu", buffer_size=10,
        learning_rate=MEMBERS[index]["learning_rate"], ent_coef=MEMBERS[index].get("entropy_coef", "auto"),
        policy_kwargs={"net_arch": [16, 8]}, **values,
    )  # fmt: skip
    model.set_logger(sb3.common.logger.configure(None, []))
    model.policy.double()
    if model.log_ent_coef is not None:
        model.log_ent_coef = model.log_ent_coef.detach().double().requires_grad_(True)
        model.ent_coef_optimizer = torch.optim.Adam([model.log_ent_coef], lr=MEMBERS[index]["learning_rate"])
    else:
        model.ent_coef_tensor = torch.tensor(MEMBERS[index]["entropy_coef"], dtype=torch.float64)
    for module, weights in (
        (model.actor, state.actor.weights),
        (model.critic, state.critics.weights),
        (model.critic_target, state.targets),
    ):
        theirs = module.state_dict()
        for ours, name in torch_names(weights).items():
            theirs[name].copy_(torch.as_tensor(weights[ours][index]))
    queue, noise = [], []
    for g in range(G):
        rows = Transitions(*(torch.as_tensor(part[g, index]) for part in batches.transitions))
        queue.append(ReplayBufferSamples(rows.observations, rows.actions, rows.next_observations,
                                         rows.terminations[:, None], rows.rewards[:, None]))  # fmt: skip
        noise += [torch.as_tensor(part[g, index]) for part in (batches.noise, batches.next_noise)]
    patch.setattr(model.replay_buffer, "sample", lambda *_, **__: queue.pop(0))
    patch.setattr("torch.distributions.normal._standard_normal", lambda *_, **__: noise.pop(0))
    model.train(G, B)
    assert not queue and not noise
    return model


@pytest.mark.parametrize(("indices", "threads"), [([0, 1, 2], 1), ([2, 0], 2)], ids=["stacked", "lanes"])
def test_gradient_steps_equal_sb3_alone_and_stacked(indices, threads, monkeypatch):
    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda obs, *rest, **options: obs)
    batches = minibatches(np.random.default_rng(2))
    everyone = members(range(len(MEMBERS)))
    generators = [np.random.default_rng(index) for index in range(len(MEMBERS))]
    whole = first_state(everyone, generators, Sizes(), dtype=np.float64)
    models = [reference(index, whole, batches, monkeypatch) for index in indices]

    group = members(indices)
    state = jax.tree.map(lambda x: x[np.array(indices)], whole)
    own = jax.tree.map(lambda x: x[:, np.array(indices)], batches)
    optimise = (
        optimise_together(update_function(group), dtype=np.float64)
        if threads == 1
        else SacLanes(group, environment=Sizes(), threads=threads, dtype=np.float64)
    )
    end = optimise(state, own, coefficients_of(group, dtype=np.float64))
    assert end.active.all()
    for row, model in enumerate(models):
        pairs = ((model.actor, end.actor), (model.critic, end.critics))
        for module, network in pairs:
            theirs, moments = module.state_dict(keep_vars=True), module.optimizer.state
            for ours, name in torch_names(network.weights).items():
                expected = (
                    theirs[name].detach(),
                    moments[theirs[name]]["exp_avg"],
                    moments[theirs[name]]["exp_avg_sq"],
                )
                got = (network.weights[ours], network.adam.first[ours], network.adam.second[ours])
                for ours_value, value in zip(got, expected, strict=True):
                    np.testing.assert_allclose(ours_value[row], value.numpy(), rtol=0, atol=1e-9, err_msg=name)
        targets = model.critic_target.state_dict()
        for ours, name in torch_names(end.targets).items():
            np.testing.assert_allclose(end.targets[ours][row], targets[name].numpy(), rtol=0, atol=1e-9)
        logged = model.logger.name_to_value
        if model.log_ent_coef is not None:
            assert end.temperature.weights["log"][row] == pytest.approx(model.log_ent_coef.item(), abs=1e-10)
            loss = end.sums["entropy_coefficient_loss"][row] / G
            assert loss == pytest.approx(logged["train/ent_coef_loss"], abs=1e-9)
        else:
            assert end.temperature.weights["log"][row] == 0.0
        names = {"policy_loss": "actor_loss", "value_loss": "critic_loss", "entropy_coefficient": "ent_coef"}
        for ours_name, name in names.items():
            assert end.sums[ours_name][row] / G == pytest.approx(logged[f"train/{name}"], abs=1e-9)
