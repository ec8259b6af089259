"""Members learn as SB3's PPO does, and in company as alone: the figures of their first updates agree in distribution.

Initial weights, noise, normalisation, bootstrapping and the order of minibatches all show in them. Tens of seeds give
standard errors of a few per cent, which final returns never do; a difference must be near five of these to be figures.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

stats = pytest.importorskip("scipy.stats")
pytest.importorskip("jax")

from dressage.contracts.reward import load_reward  # noqa: E402
from dressage.envs import EnvOptions, make_batch  # noqa: E402
from dressage.envs.cards import load_card  # noqa: E402
from dressage_trainer.backends.group import MemberSetup  # noqa: E402
from dressage_trainer.messages import MemberTask, TrainSpec  # noqa: E402

ERROR_RATE = 1e-4
"""How likely a test is to fail where the distributions are one, over all of its comparisons (Bonferroni)."""
FIGURES = (
    "episode_return",
    "episode_length",
    "entropy",
    "clip_fraction",
    "explained_variance",
    "policy_loss",
    "value_loss",
)
REWARD = '''
LATEX = "v_x + 1"
TERMS = {"speed": "forward velocity, m/s", "healthy": "1 for every step"}

def reward(state, action, next_state, memory, np):
    """Walks."""
    return {"speed": next_state.x_velocity, "healthy": np.ones_like(next_state.x_velocity)}
'''
GIVEN = {"num_envs": 8, "num_steps": 64, "minibatch_size": 64, "epochs": 5, "hidden_sizes": [32, 32], "learning_rate": 2e-3,
         "entropy_coef": 0.01, "initial_log_std": -1.0, "gae_lambda": 0.9, "discount": 0.98}  # fmt: skip
"""A rate at which a few updates make values that bootstrapping needs: with 5e-4 its absence was not figures."""
CUT = 20
"""Steps of an episode: some are cut, some fall before."""
UPDATES = 4
SEEDS = 30


def first_updates(folder: Path, members: list[MemberTask], *, backend: str = "jax") -> dict[str, np.ndarray]:
    """Figures of each member's first updates, ``[members, updates]`` by name."""
    card = load_card("Walker2d-v5")
    build = importlib.import_module(
        "dressage_trainer.backends.stacked" if backend == "jax" else "dressage_trainer.backends.sb3.groups"
    )
    spec = TrainSpec(
        environment="Walker2d-v5", reward_source=REWARD, members=tuple(members), threads=1, backend=backend
    )
    setup = MemberSetup(
        spec=spec,
        card=card,
        options=EnvOptions(max_episode_steps=CUT),
        module=load_reward(REWARD, card),
        root=folder,
    )
    groups = build.build_groups(setup, make_batch=make_batch)
    seen: dict[str, list[dict[str, float]]] = {task.member: [] for task in members}
    for _ in range(UPDATES):
        for group in groups:
            group.advance(began=0.0)
            for state in group.states():
                seen[state.member].append(dict(state.metrics))
    for group in groups:
        group.close()
    return {name: np.array([[row[name] for row in rows] for rows in seen.values()]) for name in FIGURES}


def differing(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """Return the figures whose means differ in Welch's test, each ``[members, updates]``."""
    comparisons = sum(values.shape[1] for values in one.values())
    figures = []
    for name, values in one.items():
        chances = stats.ttest_ind(values, other[name], equal_var=False).pvalue
        for update in np.flatnonzero(chances < ERROR_RATE / comparisons):
            means = values[:, update].mean(), other[name][:, update].mean()
            figures.append(f"{name} after update {update + 1}: {means[0]:.5g} against {means[1]:.5g}")
    return figures


def seeded(first: int, **changes: object) -> list[MemberTask]:
    """Members that differ by seed alone."""
    return [MemberTask(f"s{seed}", {**GIVEN, **changes}, seed) for seed in range(first, first + SEEDS)]


@pytest.mark.slow  # test_trainer_whole_training.py is exact, given the same chance; this is of chance as well
def test_first_updates_are_those_of_sb3(tmp_path):
    pytest.importorskip("stable_baselines3")
    ours = first_updates(tmp_path / "ours", seeded(0))
    theirs = first_updates(tmp_path / "theirs", seeded(1000), backend="sb3")
    assert not differing(ours, theirs)


@pytest.mark.slow  # test_trainer_collect.py has the same to 1e-8, on a fake environment
def test_members_in_company_learn_as_alone(tmp_path):
    parts = [first_updates(tmp_path / task.member, [task]) for task in seeded(0)]
    alone = {name: np.concatenate([part[name] for part in parts]) for name in FIGURES}
    wild = seeded(5000, learning_rate=3e-2, clip_range=0.9, entropy_coef=0.5, discount=0.5, initial_log_std=0.5)
    together = first_updates(tmp_path / "together", [*seeded(2000), *wild])
    assert not differing(alone, {name: values[:SEEDS] for name, values in together.items()})
    assert differing(alone, {name: values[SEEDS:] for name, values in together.items()})
