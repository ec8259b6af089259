"""The template author's code for tasks of environment packs, on made-up episodes: the packs are not installed here."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dressage.envs.cards import list_cards, load_card
from dressage.envs.trajectory import load_check_trajectories
from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.author import write_judge, write_reward
from paraphrases import GO1, ISAAC_CARTPOLE
from test_template_code import brief_of, made_up, run_judge, run_reward


def score(text, environment, steps=None, terminated=False, **columns):
    """The judge's score of an episode with constant or given columns, otherwise 0; a legged robot is upright."""
    if environment == GO1:
        columns.setdefault("root_gravity", (0.0, 0.0, -1.0))
    steps = steps or load_card(environment).max_episode_steps
    given = {name: np.asarray(value) for name, value in columns.items()}
    played = made_up(environment, steps=steps, velocity=0.0, terminated=terminated, **given)
    return run_judge(write_judge(brief_of(text, environment)).source, played)["score"]


def earned(text, environment, row, action=0.0):
    """The reward of one step into a state."""
    card = load_card(environment)
    fields = {entry.name: np.zeros((1, *entry.shape)) for entry in card.fields}
    state = SimpleNamespace(**fields)
    after = SimpleNamespace(**{**fields, **{name: np.asarray(value, float)[None] for name, value in row.items()}})
    source = write_reward(brief_of(text, environment)).source
    return float(sum(run_reward(source, state, np.full((1, card.action_size), action), after).values())[0])


def test_every_trainable_task_of_a_pack_has_a_family():
    tasks = {card.id for card in list_cards() if card.pack and "reward" in card.methods}
    assert tasks == {name for name, able in ABILITIES.items() if able.family}


@pytest.mark.parametrize(
    ("text", "velocity", "passes"),
    [
        ("walk forward", (0.6, 0.0, 0.0), True),
        ("walk forward", (-0.6, 0.0, 0.0), False),
        ("walk forward", (0.0, 0.6, 0.0), False),
        ("walk forward", (1.2, 0.0, 0.0), False),
        ("walk backward", (-0.6, 0.0, 0.0), True),
        ("move left", (0.0, 0.6, 0.0), True),
        ("move right", (0.0, 0.6, 0.0), False),
        ("run forward fast", (1.6, 0.0, 0.0), True),
        ("walk forward at 0.3 m/s", (0.3, 0.0, 0.0), True),
        ("stand still", (0.0, 0.0, 0.0), True),
        ("stand still", (0.6, 0.0, 0.0), False),
    ],
)
def test_a_legged_robot_is_judged_by_the_velocity_in_its_own_frame(text, velocity, passes):
    assert (score(text, GO1, root_velocity=velocity) >= 0.7) == passes


def test_a_legged_robot_that_falls_or_circles_fails():
    ahead = (0.6, 0.0, 0.0)
    assert score("walk forward", GO1, steps=300, terminated=True, root_velocity=ahead) < 0.4
    circles = {"root_velocity": ahead, "root_angular_velocity": (0.0, 0.0, 0.8)}
    assert score("walk forward without turning", GO1, **circles) < 0.4 < score("walk forward", GO1, **circles)
    leaning = {"root_velocity": ahead, "root_gravity": (0.0, 0.8, -0.6)}
    assert score("walk forward upright", GO1, **leaning) < 0.9 < score("walk forward", GO1, **leaning)


def test_turning_on_the_spot_is_judged_by_rate_and_place():
    left, right = (0.0, 0.0, 0.6), (0.0, 0.0, -0.6)
    assert score("turn on the spot", GO1, root_angular_velocity=left) >= 0.7
    assert (
        score("spin left", GO1, root_angular_velocity=left)
        >= 0.7
        > score("spin left", GO1, root_angular_velocity=right)
    )
    drifted = np.linspace(0.0, 5.0, 1001)[:, None] * [1.0, 0.0, 0.0]
    assert score("turn on the spot", GO1, root_angular_velocity=left, root_position=drifted) < 0.7


@pytest.mark.parametrize(
    ("text", "better", "worse"),
    [
        ("walk forward", {"root_velocity": (0.6, 0, 0)}, {"root_velocity": (0, 0, 0)}),
        ("walk forward", {"root_velocity": (0.6, 0, 0)}, {"root_velocity": (0.6, 0.5, 0)}),
        ("run backward", {"root_velocity": (-1, 0, 0)}, {"root_velocity": (1, 0, 0)}),
        ("spin right", {"root_angular_velocity": (0, 0, -0.5)}, {"root_angular_velocity": (0, 0, 0.5)}),
        ("stand still", {}, {"root_velocity": (0.3, 0, 0)}),
        ("stand still", {}, {"joint_velocities": np.full(12, 3.0)}),
    ],
)
def test_rewards_of_a_legged_robot_prefer_the_behaviour(text, better, worse):
    assert earned(text, GO1, better) > earned(text, GO1, worse)


@pytest.mark.parametrize("text", ["keep the pole upright", "balance to the right with little energy"])
def test_no_step_of_a_cart_pole_costs_more_than_it_earns(text):
    """Otherwise leaving the rail, which ends the episode, would pay."""
    worst = {"joint_positions": (3.0, np.pi), "joint_velocities": (5.0, 30.0)}
    assert earned(text, ISAAC_CARTPOLE, worst, action=1.0) > 0.0
    assert earned(text, ISAAC_CARTPOLE, {}) > earned(text, ISAAC_CARTPOLE, worst)


@pytest.mark.parametrize(
    ("text", "cart", "pole", "passes"),
    [
        ("keep the pole upright", 1.5, 0.05, True),
        ("keep the pole upright", 0.0, 2 * np.pi, True),
        ("keep the pole upright", 0.0, np.pi, False),
        ("keep the pole upright in the middle of the rail", 0.1, 0.05, True),
        ("keep the pole upright in the middle of the rail", 1.5, 0.05, False),
        ("balance to the right", 0.5, 0.05, True),
        ("balance to the right", -0.5, 0.05, False),
    ],
)
def test_a_cart_pole_is_judged_by_angle_and_place(text, cart, pole, passes):
    assert (score(text, ISAAC_CARTPOLE, joint_positions=(cart, pole)) >= 0.7) == passes


def test_a_robot_that_stands_still_in_the_simulator_may_pass_as_standing():
    source = write_judge(brief_of("stand still", GO1)).source
    for recorded in load_check_trajectories(GO1)["motionless"]:
        result = run_judge(source, recorded)
        assert result["criteria"]["still"] == result["criteria"]["quiet"] == result["criteria"]["place"] == 1.0
