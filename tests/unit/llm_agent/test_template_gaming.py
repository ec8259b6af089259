"""What the template author's rewards pay for: the behaviour earns more than each shortcut, in episodes that are written here.

An episode is a table of the fields that a reward reads, row by row. The shortcuts are those that trainings end in: to stand
still where walking may fall, to leap and fall, to sit where standing is asked for, to strike an object once.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.envs.cards import load_card
from dressage.training.preset import load_preset
from dressage_llm_agent.template.author import write_judge, write_reward
from test_template_code import made_up, run_judge, run_reward

SWING = np.sin(2 * np.pi * np.arange(400) / 40)
SHARE_OF_RANGE = 0.5
"""Size of a walking robot's actions, by the largest that are possible; one that stands still uses none."""


def columns(environment: str, steps: int, **fields: object) -> dict[str, np.ndarray]:
    """Fields of an upright robot at rest, or of an arm; fields given override."""
    card = load_card(environment)
    values = {entry.name: np.zeros((steps, *entry.shape)) for entry in card.fields}
    if "upright" in values:
        values["upright"] += 1.0
    if "z_position" in values and environment != "HumanoidStandup-v5":
        values["z_position"] += card.scales.get("standing_height", 0.0)
    for name, value in fields.items():
        assert name in values
        values[name] = np.broadcast_to(np.asarray(value, dtype=float), (steps,))
    return values


def rewards(environment: str, text: str, values: dict[str, np.ndarray], *, effort: float = 0.0) -> np.ndarray:
    """The reward of each row.

    :param effort: size of the actions by the largest that are possible.
    """
    card = load_card(environment)
    source = write_reward(pb.Brief(intent=text, environment=environment)).source
    steps = len(values["observation"])
    action = np.full((steps, card.action_size), effort * max(part.high for part in card.action))
    state = SimpleNamespace(**values)
    return np.asarray(sum(run_reward(source, state, action, state).values()))


def gait(mean: float, steps: int = 400) -> np.ndarray:
    """The velocity of a torso that speeds up and slows down by 60 % of its mean with every step of a leg, in m/s."""
    return mean * (1.0 + 0.6 * SWING[:steps])


def moving(environment: str, text: str, mean: float) -> float:
    """Mean reward of a gait."""
    values = columns(environment, 400, x_velocity=gait(mean))
    return float(rewards(environment, text, values, effort=SHARE_OF_RANGE).mean())


def standing(environment: str, text: str) -> float:
    """Mean reward of standing still."""
    return float(rewards(environment, text, columns(environment, 10)).mean())


TARGETS = {
    ("Humanoid-v5", "walk forward"): 0.8,
    ("Humanoid-v5", "run forward fast"): 2.5,
    ("Ant-v5", "walk forward"): 1.0,
    ("Ant-v5", "run forward fast"): 2.5,
    ("Walker2d-v5", "walk forward"): 1.0,
    ("Walker2d-v5", "run forward fast"): 2.5,
}


@pytest.mark.parametrize(("environment", "text"), sorted(TARGETS))
def test_standing_still_earns_less_than_walking_slowly(environment, text):
    target = TARGETS[environment, text]
    slow, half, full = (moving(environment, text, share * target) for share in (0.3, 0.5, 1.0))
    assert standing(environment, text) < slow < half < full


@pytest.mark.parametrize(("environment", "text"), sorted(TARGETS))
def test_rocking_in_place_earns_no_more_than_standing_still(environment, text):
    target = TARGETS[environment, text]
    for size in (0.3, 0.6, 1.0, 1.5, 3.0):
        rocking = columns(environment, 400, x_velocity=size * target * SWING)
        assert rewards(environment, text, rocking).mean() <= standing(environment, text) + 0.01


@pytest.mark.parametrize(("environment", "text"), sorted(TARGETS))
def test_walking_earns_more_than_standing_even_if_it_falls_now_and_then(environment, text):
    """Discounted as in training. A gait that falls every few seconds is what learning to walk passes through."""
    discount, step = load_preset(environment).ppo.discount, load_card(environment).time_step
    fall = step / 4.0  # probability of a fall in a step, once in four seconds
    # Whoever learns to run walks first; a humanoid's bonus for staying up is large, as is the loss of it.
    speed = 1.0 if environment == "Humanoid-v5" and "run" in text else TARGETS[environment, text]
    walking = moving(environment, text, speed) / (1 - discount * (1 - fall))
    assert walking > standing(environment, text) / (1 - discount)


@pytest.mark.parametrize("text", ["walk forward", "move forward", "run forward", "run forward fast"])
def test_a_humanoids_leap_that_ends_in_a_fall_earns_less_than_standing(text):
    leap = columns("Humanoid-v5", 30, x_velocity=np.linspace(0.0, 4.0, 30), upright=np.linspace(1.0, 0.3, 30))
    discount = load_preset("Humanoid-v5").ppo.discount
    earned = np.sum(discount ** np.arange(30) * rewards("Humanoid-v5", text, leap, effort=SHARE_OF_RANGE))
    assert earned < 0.8 * standing("Humanoid-v5", text) / (1 - discount)


@pytest.mark.parametrize("text", ["walk forward", "walk slowly", "run forward fast", "stand still"])
def test_a_humanoid_that_falls_earns_less_at_once_than_one_that_stands(text):
    """Over the same steps, before the episode ends: what comes after a fall counts little while values are not learned."""
    share = np.linspace(0.0, 1.0, 70)
    fall = columns("Humanoid-v5", 70, z_position=1.4 - 0.4 * share, upright=1.0 - 0.5 * share, x_velocity=1.6 * share)
    assert rewards("Humanoid-v5", text, fall).mean() < 0.8 * standing("Humanoid-v5", text)


@pytest.mark.parametrize(("text", "target"), [("hop forward", 1.0), ("hop backward", 0.75), ("run forward", 1.0)])
def test_a_hopper_earns_no_more_for_more_speed_than_it_is_asked_for(text, target):
    """Policies that are paid for more hop at 2.3 to 2.5 m/s, and fall."""
    sign = -1.0 if "backward" in text else 1.0
    earned = [
        float(rewards("Hopper-v5", text, columns("Hopper-v5", 10, x_velocity=sign * share * target)).mean())
        for share in (0.0, 0.5, 1.0, 1.25, 2.5)
    ]
    assert earned[0] < earned[1] < earned[2] < earned[3] == pytest.approx(earned[4])


def test_a_hopper_that_is_asked_to_be_fast_earns_more_for_more_speed():
    slower, faster = (
        rewards("Hopper-v5", "hop forward fast", columns("Hopper-v5", 10, x_velocity=speed)).mean()
        for speed in (2.5, 3.0)
    )
    assert slower < faster


RISEN = load_card("HumanoidStandup-v5").scales["standing_head_height"]


def rising(head: float, upright: float, *, pelvis: float = 0.12, feet: float = 0.9) -> float:
    """Mean reward of a posture: head by its standing height, pelvis in m, distance of the feet from it in m."""
    values = columns("HumanoidStandup-v5", 10, head_height=head * RISEN, upright=upright)
    values["xpos_pelvis"][:, 2] = pelvis
    values["xpos_right_foot"][:, 0] = values["xpos_left_foot"][:, 0] = feet
    return float(rewards("HumanoidStandup-v5", "stand up", values).mean())


def test_sitting_earns_less_than_half_of_standing_up():
    lying, bridge = rising(0.08, 0.0), rising(0.08, -0.3, pelvis=0.4, feet=0.3)
    sitting, squatting = rising(0.5, 1.0), rising(0.53, 0.9, pelvis=0.37, feet=0.2)
    kneeling, up = rising(0.7, 1.0, pelvis=0.5, feet=0.4), rising(1.0, 1.0, pelvis=0.95, feet=0.0)
    assert bridge <= lying < 0.5 < sitting < 0.5 * up
    assert sitting < squatting < kneeling < 0.8 * up
    assert rising(0.2, 0.3) > lying  # the way up is paid from the ground on
    assert rising(0.5, 1.0, feet=0.4) > sitting  # so are legs that are drawn up
    judge = write_judge(pb.Brief(intent="stand up", environment="HumanoidStandup-v5")).source
    scores = [
        run_judge(judge, made_up("HumanoidStandup-v5", steps=1000, velocity=0, head_height=head * RISEN, upright=1.0))
        for head in (0.5, 1.0)
    ]
    assert scores[0]["score"] < 0.3 and scores[1]["score"] == 1.0


def sitting(pelvis: float, upright: float, head: float) -> float:
    """Mean reward of a posture for "sit up": heights in m."""
    values = columns("HumanoidStandup-v5", 10, head_height=head, upright=upright)
    values["xpos_pelvis"][:, 2] = pelvis
    return float(rewards("HumanoidStandup-v5", "sit up", values).mean())


def test_sitting_earns_more_than_lying_leaning_and_standing():
    lying, leaning, seated = sitting(0.11, 0.0, 0.1), sitting(0.12, 0.5, 0.4), sitting(0.12, 1.0, 0.65)
    standing_up, bridge = sitting(0.95, 1.0, 1.55), sitting(0.6, -0.5, 0.2)
    assert bridge < lying < leaning < 0.8 * seated and standing_up < 0.6 * seated
    judge = write_judge(pb.Brief(intent="sit up", environment="HumanoidStandup-v5")).source

    def score(pelvis: float, upright: float) -> float:
        seen = made_up("HumanoidStandup-v5", steps=1000, velocity=0, upright=upright)
        seen.xpos_pelvis[:, 2] = pelvis
        return float(run_judge(judge, seen)["score"])

    assert score(0.12, 1.0) == 1.0 and score(0.11, 0.0) == score(0.95, 1.0) == 0.0
    assert score(0.12, 0.6) < 0.7  # leaning back by 53 degrees is not sitting up


def pushing(hand: object, goal: object, steps: int = 100) -> float:
    """Mean reward of an arm; distances of the hand from the object and of the object from the goal, in m, from row to row."""
    values = columns("Pusher-v5", steps, distance_to_object=hand, distance_object_to_goal=goal)
    return float(rewards("Pusher-v5", "push the object to the goal", values, effort=0.2).mean())


# As in stock Pusher: the hand starts half a metre from the object, whose centre is 0.05 m above that of the goal.
APPROACH = np.concatenate([np.linspace(0.55, 0.1, 30), np.full(70, 0.1)])
AWAY = np.concatenate([np.linspace(0.55, 0.1, 30), np.linspace(0.1, 0.6, 20), np.full(50, 0.6)])
STRUCK = np.concatenate([np.full(30, 0.26), np.full(70, 0.15)])
PUSHED = np.concatenate([np.full(30, 0.26), np.linspace(0.26, 0.055, 40), np.full(30, 0.055)])


def test_an_object_struck_once_earns_less_than_a_hand_that_stays_at_it():
    idle, strike = pushing(0.55, 0.26), pushing(AWAY, STRUCK)
    reach, push = pushing(APPROACH, 0.26), pushing(APPROACH, PUSHED)
    assert idle < strike < reach < push
    assert pushing(APPROACH, STRUCK) > reach  # at the object, each centimetre towards the goal counts
    judge = write_judge(pb.Brief(intent="push the object to the goal", environment="Pusher-v5")).source
    struck, whole = (
        run_judge(judge, SimpleNamespace(action=np.zeros((99, 7)), distance_object_to_goal=goal))["score"]
        for goal in (STRUCK, PUSHED)
    )
    assert struck < 0.5 and whole > 0.95


def swum(sway: float, turn: float = 0.0, steps: int = 1000) -> float:
    """The criterion of direction for a swimmer that advances 0.3 m a second.

    :param sway: m, to both sides of the way with each stroke of 1.3 seconds; those of trained swimmers are 0.2 to 0.6 m.
    :param turn: rad a second.
    """
    seconds = np.arange(steps + 1) * 0.04
    heading = turn * seconds
    x, y = np.cumsum(-0.012 * np.cos(heading)), np.cumsum(-0.012 * np.sin(heading))
    y = y + sway * np.sin(2 * np.pi * seconds / 1.3)
    judge = write_judge(pb.Brief(intent="swim backward", environment="Swimmer-v5")).source
    trajectory = made_up("Swimmer-v5", steps=steps, velocity=0.0, x_position=x, y_position=y)
    return float(run_judge(judge, trajectory)["criteria"]["direction"])


@pytest.mark.parametrize("sway", [0.0, 0.2, 0.6])
def test_a_swimmer_that_sways_swims_straight_and_one_in_circles_not(sway):
    assert swum(sway) == 1.0
    assert swum(sway, turn=2 * np.pi / 20) < 0.1
    assert swum(sway, steps=1) <= 1.0
