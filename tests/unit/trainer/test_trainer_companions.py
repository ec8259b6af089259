"""Nothing of a member leaks into another: one update in any company equals the update alone."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.training.hyperparameters import Hyperparameters  # noqa: E402
from dressage_trainer.ppo.members import MemberSpec  # noqa: E402
from dressage_trainer.ppo.networks import initial_weights, stack  # noqa: E402
from dressage_trainer.ppo.ppo import Coefficients, RolloutBuffer  # noqa: E402
from dressage_trainer.ppo.train_state import initial_adam  # noqa: E402
from dressage_trainer.speed.lanes import PpoLanes  # noqa: E402
from fake_environment import A, D, FakeBatch  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

T, N, EPOCHS = 12, 2, 3

COEFFICIENTS = st.fixed_dictionaries(
    {
        "learning_rate": st.floats(1e-6, 1e-1),
        "clip_range": st.floats(0.01, 1.0),
        "entropy_coef": st.floats(0.0, 1.0),
        "value_coef": st.floats(0.0, 10.0),
        "max_grad_norm": st.floats(0.01, 100.0),
        "target_kl": st.one_of(st.just(np.inf), st.floats(1e-4, 0.1)),
        "epochs": st.integers(0, EPOCHS),
        "discount": st.floats(0.0, 1.0),
        "gae_lambda": st.floats(0.0, 1.0),
    }
)


def member(seed, scale):
    rng = np.random.default_rng(seed)
    weights = initial_weights(observation_size=D, action_size=A, hidden_sizes=(4,), rng=rng, dtype=np.float64)
    rollout = RolloutBuffer(
        rng.standard_normal((T, N, D)), rng.standard_normal((T, N, A)), rng.standard_normal((T, N)) - 3,
        scale * rng.standard_normal((T, N)), (rng.random((T, N)) < 0.2).astype(float), rng.standard_normal((N, D)),
    )  # fmt: skip
    orders = np.array([rng.permutation(T * N) for _ in range(EPOCHS)], np.int32)
    return weights, rollout, orders


@functools.cache
def compiled(members, threads):
    """Three members are a stack on one thread, and on two threads three lanes, of which one is cut."""
    given = Hyperparameters(num_envs=N, num_steps=T, minibatch_size=10, epochs=EPOCHS, hidden_sizes=(4,))
    specs = [MemberSpec(f"m{index}", given, index) for index in range(members)]
    return PpoLanes(specs, environment=FakeBatch(members, N), threads=threads, dtype=np.float64,
                      size=members if threads == 1 else 1)  # fmt: skip


def run(members, coefficients, *, threads=1):
    weights = stack([w for w, _, _ in members])
    rollout = RolloutBuffer(*(np.stack(parts) for parts in zip(*(r for _, r, _ in members), strict=True)))
    orders = np.stack([order for _, _, order in members], axis=1)
    kinds = {name: np.int32 if name == "epochs" else np.float64 for name in Coefficients._fields}
    c = Coefficients(**{name: np.array([m[name] for m in coefficients], kind) for name, kind in kinds.items()})
    with jax.enable_x64(True):
        arguments = (weights, initial_adam(weights, len(members)), rollout, orders, c)
        return jax.tree.map(np.asarray, compiled(len(members), threads)(*arguments))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.lists(COEFFICIENTS, min_size=3, max_size=3),
    st.lists(st.integers(0, 2**31), min_size=3, max_size=3),
    st.lists(st.sampled_from([1.0, 1e3, np.nan]), min_size=3, max_size=3),
)
def test_an_update_in_company_equals_the_update_alone(coefficients, seeds, scales):
    members = [member(seed, scale) for seed, scale in zip(seeds, scales, strict=True)]
    stacked, lanes = run(members, coefficients), run(members, coefficients, threads=2)
    for index in range(3):
        alone = run([members[index]], [coefficients[index]])
        for together in (stacked, lanes):
            for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
                np.testing.assert_allclose(ours[index], theirs[0], rtol=1e-8, atol=1e-8)
