"""The template author's code, run: rewards against the contract, judges against real episodes."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.contracts.evidence import examine_judge, examine_reward
from dressage.contracts.source import lint_judge, lint_reward
from dressage.envs.cards import list_cards, load_card
from dressage.envs.options import EnvOptions
from dressage.envs.reference import motionless_policy, random_policy, rollout
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage_judge.controls import control_trajectories
from dressage_llm_agent.roles.judge_author import NULL_CONTROLS
from dressage_llm_agent.template.author import elicit, write_judge, write_reward
from dressage_llm_agent.template.parser import parse
from hypothesis import given, settings
from hypothesis import strategies as st
from paraphrases import ANT, CHEETAH, DECLINED, HOPPER, HUMANOID, KNOWN, PENDULUM, STANDUP

# Example intents of the cards that the template author declines, for the reasons in `paraphrases.DECLINED`.
BEYOND = {(case.environment, case.text) for case in DECLINED}
TRAINED = [card for card in list_cards() if "reward" in card.methods]
EXAMPLES = [(card.id, text) for card in TRAINED for text in card.example_intents if (card.id, text) not in BEYOND]
ALL = sorted({(case.environment, case.text) for case in KNOWN} | set(EXAMPLES))


def brief_of(text, environment):
    return pb.Brief(intent=text, environment=environment)


def run_reward(source, state, action, next_state):
    names: dict = {}
    exec(source, names)
    terms = names["reward"](state, action, next_state, SimpleNamespace(), np)
    assert set(terms) == set(names["TERMS"])
    assert names["LATEX"]
    return terms


def run_judge(source, trajectory):
    names: dict = {}
    exec(source, names)
    result = names["judge"](trajectory, np)
    assert 0.0 <= result["score"] <= 1.0
    assert all(0.0 <= value <= 1.0 for value in result["criteria"].values())
    assert all(np.isfinite(value) for value in result["evidence"].values())
    return result


def rows(environment, n, seed):
    """A state of random numbers for every field of the card."""
    rng = np.random.default_rng(seed)
    fields = load_card(environment).fields
    return SimpleNamespace(**{entry.name: rng.normal(size=(n, *entry.shape)) for entry in fields})


def made_up(environment, *, steps, velocity, terminated=False, **fields):
    """An episode that glides at a velocity (m/s), upright; fields given override."""
    card = load_card(environment)
    columns = {entry.name: np.zeros((steps + 1, *entry.shape)) for entry in card.fields}
    columns["time"] = np.arange(steps + 1) * card.time_step
    if "x_velocity" in columns:
        columns["x_velocity"] += velocity
        columns["x_position"] = columns["time"] * velocity
    if "standing_height" in card.scales:
        columns["z_position"] += card.scales["standing_height"]
    for name, value in fields.items():
        columns[name] = columns[name] + value
    return Trajectory(
        environment, 0, columns, np.zeros((steps, card.action_size)), np.zeros(steps), terminated, not terminated,
        np.zeros((steps + 1, 1)), np.zeros((steps + 1, 1)),
    )  # fmt: skip


@functools.cache
def real(environment, kind):
    policy = random_policy(environment, 5) if kind == "random" else motionless_policy(environment)
    # Bodies of many parts simulate slowly; a few seconds are enough.
    steps = 200 if environment in (ANT, HUMANOID, STANDUP) else None
    return rollout(policy, environment, [11, 12], EnvOptions(max_episode_steps=steps))


@pytest.mark.parametrize(("environment", "text"), sorted(set(ALL) - set(EXAMPLES)))
def test_generated_code_passes_the_static_checks(environment, text):
    card = load_card(environment)
    brief = brief_of(text, environment)
    assert lint_reward(write_reward(brief).source, card) == []
    assert lint_judge(write_judge(brief).source, card) == []


@pytest.mark.parametrize(("environment", "text"), EXAMPLES)
def test_examples_of_the_cards_pass_the_check_of_a_session(environment, text):
    """The same check as `JudgeService.Check`, without a sandbox, since the code is trusted."""
    card, trajectories = load_card(environment), control_trajectories(environment)
    brief = brief_of(text, environment)
    shipped = [several[0] for kind, several in trajectories.items() if kind != "time_reversed"]
    # A generous time limit: the machine may be busy, and this test is not about the code's speed.
    reward = examine_reward(write_reward(brief).source, card, shipped, budget={"vectorised": 5000.0})
    assert reward.ok, reward.failures
    proposal = write_judge(brief)
    judge = examine_judge(proposal.source, card, trajectories, nulls=proposal.null_controls, threshold=0.7)
    assert judge.ok, judge.failures


@settings(max_examples=30, deadline=None)
@given(case=st.sampled_from(ALL), n=st.integers(1, 7), seed=st.integers(0, 1000))
def test_rewards_are_finite_and_row_independent(case, n, seed):
    environment, text = case
    source = write_reward(brief_of(text, environment)).source
    state, next_state = rows(environment, n, seed), rows(environment, n, seed + 1)
    action = np.random.default_rng(seed).normal(size=(n, load_card(environment).action_size))
    terms = run_reward(source, state, action, next_state)

    def row(namespace, i):
        return SimpleNamespace(**{name: value[i : i + 1] for name, value in vars(namespace).items()})

    for name, values in terms.items():
        assert values.shape == (n,) and np.isfinite(values).all()
        for i in range(n):
            alone = run_reward(source, row(state, i), action[i : i + 1], row(next_state, i))[name]
            np.testing.assert_allclose(alone, values[i : i + 1], rtol=1e-12)


@pytest.mark.parametrize(
    ("environment", "text"), [case for case in ALL if case[0].startswith(("Inverted", "CartPole"))]
)
def test_an_early_end_of_the_episode_is_not_rewarded(environment, text):
    """If most steps of an untrained policy had a negative reward, an early fall would be optimal."""
    source = write_reward(brief_of(text, environment)).source
    for episode in real(environment, "random"):
        fields = {entry.name: episode.fields[entry.name] for entry in load_card(environment).fields}
        before, after = (
            SimpleNamespace(**{name: value[rows] for name, value in fields.items()})
            for rows in (slice(None, -1), slice(1, None))
        )
        terms = run_reward(source, before, episode.action, after)
        assert np.median(sum(terms.values())) > 0.0, terms


def test_running_is_rewarded_as_gymnasium_rewards_it():
    """Stock HalfCheetah: velocity - 0.1 |a|^2; ours adds only what costs an upside-down body."""
    episode = real(CHEETAH, "random")[0]
    source = write_reward(brief_of("run forward fast", CHEETAH)).source
    before, after = (SimpleNamespace(**{k: v[s] for k, v in episode.fields.items()}) for s in (np.s_[:-1], np.s_[1:]))
    terms = run_reward(source, before, episode.action, after)
    ours = terms["speed"] + terms["effort"]
    # Stock velocity is a difference of positions, ours is instantaneous: equal in the mean, not step by step.
    assert ours.mean() == pytest.approx(episode.reward.mean(), abs=0.02)
    assert np.all(terms["posture"] <= 0)


MOVING = [(e, t) for e, t in ALL if parse(t, e).kind == "move" and not load_card(e).pack]


@pytest.mark.parametrize(("environment", "text"), ALL)
def test_null_controls_fail_their_judges(environment, text):
    proposal = write_judge(brief_of(text, environment))
    assert proposal.null_controls and set(proposal.null_controls) <= set(NULL_CONTROLS)
    shipped = load_check_trajectories(environment)
    for kind in proposal.null_controls:
        if kind == "time_reversed":
            # Played backwards, neither the behaviour nor any of the shipped episodes may pass.
            episodes = [e.reverse_time() for several in shipped.values() for e in several]
        else:
            episodes = shipped[kind]
        for episode in episodes:
            assert run_judge(proposal.source, episode)["score"] < 0.3, kind


@pytest.mark.parametrize(("environment", "text"), MOVING)
def test_judges_of_motion_fail_random_and_motionless_episodes(environment, text):
    source = write_judge(brief_of(text, environment)).source
    for kind in ("random", "motionless"):
        for episode in real(environment, kind):
            assert run_judge(source, episode)["score"] < 0.3
            assert run_judge(source, episode.reverse_time())["score"] < 0.3


@pytest.mark.parametrize(
    ("velocity", "low", "high"), [(0.5, 0, 0.05), (2.0, 0, 0.5), (4.0, 0.7, 0.9), (5.0, 0.95, 1), (7.0, 1, 1)]
)
def test_a_fast_cheetah_is_judged_by_its_speed(velocity, low, high):
    source = write_judge(brief_of("run forward fast", CHEETAH)).source
    episode = made_up(CHEETAH, steps=1000, velocity=velocity)
    assert low <= run_judge(source, episode)["score"] <= high
    assert run_judge(source, episode.reverse_time())["score"] == 0
    upside_down = made_up(CHEETAH, steps=1000, velocity=velocity, pitch=np.pi)
    assert run_judge(source, upside_down)["score"] < 0.5


@pytest.mark.parametrize(
    ("steps", "terminated", "passes"), [(1000, False, True), (400, True, False), (60, True, False)]
)
def test_a_hopper_passes_when_it_does_not_fall(steps, terminated, passes):
    source = write_judge(brief_of("hop forward", HOPPER)).source
    score = run_judge(source, made_up(HOPPER, steps=steps, velocity=1.2, terminated=terminated))["score"]
    assert (score >= 0.7) == passes


def test_walking_is_held_not_exceeded():
    source = write_judge(brief_of("walk forward at 1.5 m/s", CHEETAH)).source
    scores = {v: run_judge(source, made_up(CHEETAH, steps=1000, velocity=v))["score"] for v in (0.3, 1.5, 3.0)}
    assert scores[1.5] == 1 and scores[0.3] < 0.3 and scores[3.0] == 0


def test_balancing_is_judged_by_how_long_and_how_upright():
    source = write_judge(brief_of("balance the pole", PENDULUM)).source
    assert run_judge(source, made_up(PENDULUM, steps=1000, velocity=0))["score"] == 1
    assert run_judge(source, made_up(PENDULUM, steps=1000, velocity=0, pole_angle=0.15))["score"] < 0.7
    assert run_judge(source, made_up(PENDULUM, steps=300, velocity=0, terminated=True))["score"] == pytest.approx(0.3)


def test_standing_and_jumping():
    stand = write_judge(brief_of("stand still", CHEETAH)).source
    assert all(run_judge(stand, episode)["score"] > 0.7 for episode in real(CHEETAH, "motionless"))
    jump = write_judge(brief_of("jump high", HOPPER)).source
    foot = 0.3 * np.abs(np.sin(np.arange(1001) * 0.05))
    assert run_judge(jump, made_up(HOPPER, steps=1000, velocity=0, height_foot=foot))["score"] > 0.9
    assert run_judge(jump, made_up(HOPPER, steps=1000, velocity=0))["score"] == 0


@pytest.mark.parametrize(
    ("quality", "kind"),
    [("smoothly", "smooth"), ("with little energy", "energy"), ("upright", "upright"), ("low", "low")],
)
def test_qualities_change_reward_and_judge(quality, kind):
    text = f"run forward {quality}"
    plain, own = (write_reward(brief_of(t, CHEETAH)).source for t in ("run forward", text))
    assert plain != own
    assert kind in run_judge(write_judge(brief_of(text, CHEETAH)).source, real(CHEETAH, "random")[0])["criteria"]


def test_the_elicitor_states_the_judges_criteria():
    result = elicit(brief_of("hop forward fast", HOPPER))
    assert len(result.criteria) >= 4
    assert all(c.title and c.description and c.category and c.default_on for c in result.criteria)
