"""The terms of each behaviour, without those of its qualities."""

from __future__ import annotations

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.plans import Term
from dressage_llm_agent.template.targets import (
    SpeedTarget,
    distance_field,
    foot_heights,
    has,
    level,
    lowest,
    mean_squared_rate,
    place_fields,
    speed_target,
    spin_target,
    tips_over,
    turning_rate_field,
)

SITTING, STANDING = 0.4, 0.9
"""Height of the head, by that of standing, from which a robot rises from sitting, and from which it stands."""

PLACES = {"rightward": 0.5, "leftward": -0.5}
"""Target position of a cart on the rail, in m."""

_HELD = 2.0  # reward of an exact speed
_WALKING = 0.8  # speed of a humanoid's walk, m/s
_STEADY_SPEED, _FASTER = 3.5, 5.0  # weights of a humanoid's speed up to that, and beyond it
_PELVIS = (0.12, 0.82)  # height of a humanoid's pelvis in sitting and in standing, m
SEAT = (0.25, 0.5)  # height of its pelvis up to which it sits, and from which it does not, m
_LEGS = 0.9  # length of its legs, m
_FURTHER = 1.25  # target speeds up to which more speed earns more, where the reward of speed is bounded


def move(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """Velocity along the direction, or closeness to an exact target speed."""
    axis, sign = intent.axis, "" if intent.sign > 0 else "-"
    velocity = f"{sign}next_state.{axis}_velocity"
    target = speed_target(intent)
    # The target speed earns about as much as a walker's: a swimmer's speeds are hundredths of a m/s.
    weight = 1.0 if target.speed >= 0.5 else round(0.5 / target.speed, 1)
    way, symbol = intent.direction, f"{sign}v_{axis}"
    able = ABILITIES[card.id]
    if able.steady:
        parts = _steady_speed(intent, velocity, target, symbol=symbol)
    elif able.bounded_speed and not target.hold and "fast" not in intent.qualities:
        parts = [bounded_speed(velocity, target.speed, way=way, weight=weight * target.speed, symbol=symbol)]
    else:
        parts = [rate_term("speed", velocity, target, way=way, unit="m/s", weight=weight, symbol=symbol)]
    if len(place_fields(card)) > 1 and not able.sways:
        other = "y" if axis == "x" else "x"
        meaning = f"cost of the speed along {other}, m/s"
        parts.append(Term("sideways", -0.1 * weight, f"np.abs(next_state.{other}_velocity)", meaning, f"|v_{other}|"))
    if intent.gait == "hop" and len(foot_heights(card)) > 1:
        parts += _together(card)
    return [*parts, *_upright(intent, card)]


def stand(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """No speed, no distance from the start, joints at rest."""
    parts = []
    if places := place_fields(card):
        speed = " + ".join(f"np.abs(next_state.{name[0]}_velocity)" for name in places)
        way = " + ".join(f"np.abs(next_state.{name})" for name in places)
        parts.append(Term("still", -0.5, speed, "cost of the speed, m/s", "|v|"))
        parts.append(Term("place", -0.1, way, "cost of the distance from the start, m", "|x|"))
    parts.append(quiet(card))
    return [*parts, *_upright(intent, card)]


def jump(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """The height of the lowest foot, in place."""
    height = lowest("next_state", foot_heights(card))
    meaning = "height of the lowest foot above the floor, m"
    parts = [
        Term("flight", 10.0, f"np.maximum({height}, 0.0)", meaning, r"\max(h_{foot}, 0)"),
        Term("place", -0.2, "np.abs(next_state.x_velocity)", "cost of the speed along the ground, m/s", "|v_x|"),
    ]
    return [*parts, *_upright(intent, card)]


def flip(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """Rotation, in the air rather than on the back.

    The rate is not clipped: with a clipped rate, shaking to and fro could earn more than it costs.
    """
    sign, way = ("", "backward, nose up") if intent.direction == "backward" else ("-", "forward, nose down")
    turning = Term(
        "turning",
        2.0 if "fast" in intent.qualities else 1.0,
        f"{sign}next_state.pitch_velocity",
        f"rate of turning over {way}, rad/s",
        rf"({sign}\dot\varphi)" if sign else r"\dot\varphi",
    )
    aloft = Term(
        "aloft",
        5.0,
        f"np.maximum(-{level('next_state', card)}, 0.0) * np.clip(next_state.z_position - 0.3, -0.3, 1.0)",
        "height of the torso above 0.3 m, m, as far as it is upside down",
        r"[-\cos\varphi]_+ (z - 0.3)",
    )
    return [turning, aloft]


def spin(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """The rate of turning about the vertical; to the left by default."""
    sign = "-" if intent.direction == "right" else ""
    rate = f"{sign}next_state.{turning_rate_field(card)}"
    way = "clockwise" if sign else "counterclockwise"
    parts = [rate_term("turning", rate, spin_target(intent), way=way, unit="rad/s", symbol=rf"{sign}\omega")]
    if places := place_fields(card):
        distance = " + ".join(f"np.square(next_state.{name})" for name in places)
        parts.append(Term("place", -0.2, distance, "cost of the squared distance from the start, m^2", "|x|^2"))
    return [*parts, *_steadiness(intent)] if ABILITIES[card.id].steady else parts


def reach(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """The distance to the target, and a bonus for the last centimetres."""
    weight = 20.0 if "fast" in intent.qualities else 10.0
    distance = f"next_state.{distance_field(card)}"
    return [
        Term("distance", -weight, distance, "cost of the distance from the target, m", "d"),
        Term(
            "close", 1.0, f"np.exp(-np.square({distance} / 0.03))", "1 at the target, 0.4 at 0.03 m", r"e^{-(d/0.03)^2}"
        ),
    ]


def push(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """The object's distance from the goal, and half as much the hand's from the object, as in the stock reward.

    With less for the hand, an object that is struck halfway, with the hand away from it, would earn more than a hand at the
    object, from which the push can continue.
    """
    weight = 20.0 if "fast" in intent.qualities else 10.0
    goal, hand = "next_state.distance_object_to_goal", "next_state.distance_to_object"
    return [
        Term("distance", -weight, goal, "cost of the object's distance from the goal, m", "d"),
        Term("hand", -0.5 * weight, hand, "cost of the hand's distance from the object, m", "d_{hand}"),
        Term("close", 2.0, f"np.exp(-np.square({goal} / 0.05))", "1 at the goal, 0.4 at 0.05 m", r"e^{-(d/0.05)^2}"),
    ]


def rise(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """The head's height, the torso upright, and, as far as it is upright, a high pelvis above the feet; sooner is better.

    Most is for what a robot that sits does not have. From there it bends its legs, squats and rises, and each of these
    earns more than the one before. Without an upright torso the pelvis counts for nothing, else a robot on its back lifts it.
    """
    height = card.scales["standing_head_height"]
    weight = 2.0 if "fast" in intent.qualities else 1.0
    head = f"np.clip(next_state.head_height / {height:.3f}, 0.0, 1.0)"
    above = f"np.clip((next_state.head_height / {height:.3f} - {SITTING:g}) / {STANDING - SITTING:g}, 0.0, 1.0)"
    meaning = f"0 with the head at {SITTING:g} of the height of standing, as in sitting, 1 from {STANDING:g}"
    upright, about = "np.clip(next_state.upright, 0.0, 1.0)", "as far as the torso is upright"
    low, high = _PELVIS
    pelvis = f"np.clip((next_state.xpos_pelvis[..., 2] - {low:g}) / {high - low:g}, 0.0, 1.0)"
    feet = "0.5 * (next_state.xpos_right_foot + next_state.xpos_left_foot)"
    apart = f"np.sqrt(np.square(({feet} - next_state.xpos_pelvis)[..., :2]).sum(-1))"
    return [
        Term("height", 2.0 * weight, head, f"height of the head by that of standing, {height:.3f} m", "h / h_0"),
        Term("standing", 2.0 * weight, above, meaning, rf"[(h / h_0 - {SITTING:g}) / {STANDING - SITTING:g}]_0^1"),
        Term(
            "posture",
            1.0,
            f"next_state.upright * {head}",
            "cosine of the tilt, as far as the head is up",
            r"\cos\varphi\,h / h_0",
        ),
        Term(
            "pelvis",
            4.0 * weight,
            f"{pelvis} * {upright}",
            f"0 with the pelvis at {low:g} m, as in sitting, 1 from {high:g} m; {about}",
            rf"[(z_p - {low:g}) / {high - low:g}]_0^1 [\cos\varphi]_0^1",
        ),
        Term(
            "feet",
            1.0,
            f"np.clip(1.0 - {apart} / {_LEGS:g}, 0.0, 1.0) * {upright}",
            f"1 with the pelvis above the feet's middle, 0 from a horizontal distance of {_LEGS:g} m; {about}",
            rf"[1 - d / {_LEGS:g}]_0^1 [\cos\varphi]_0^1",
        ),
    ]


def sit(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """The torso upright and the pelvis on the floor; the head's height leads from lying to there."""
    height = SITTING * card.scales["standing_head_height"]
    low, high = SEAT
    seat = f"np.clip((next_state.xpos_pelvis[..., 2] - {low:g}) / {high - low:g}, 0.0, 1.0)"
    return [
        Term("posture", 2.0, "next_state.upright", "cosine of the torso's tilt", r"\cos\varphi"),
        Term(
            "head",
            1.0,
            f"np.clip(next_state.head_height / {height:.3f}, 0.0, 1.0)",
            f"height of the head by that of sitting, {height:.3f} m",
            rf"[h / {height:.3f}]_0^1",
        ),
        Term(
            "seat",
            -2.0,
            seat,
            f"cost of a pelvis off the floor: 0 up to {low:g} m, 1 from {high:g} m",
            rf"[(z_p - {low:g}) / {high - low:g}]_0^1",
        ),
    ]


def balance(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """Costs of the poles' angles and of the cart's distance from its place."""
    places = intent.qualities & {"centred", *PLACES}
    target = next((PLACES[name] for name in places if name in PLACES), 0.0)
    both = has(card, "pole2_angle")
    # The episode ends at about 0.2 rad for a single pole, and at a tip height of one metre for two poles.
    unit = 0.5 if both else 0.2
    square = f"np.square(next_state.pole_angle / {unit})"
    angle = Term(
        "angle",
        -2.0 if "upright" in intent.qualities else -1.0,
        f"{square} + np.square(next_state.pole2_angle / {unit})" if both else square,
        f"cost of the squared angle of {'each' if both else 'the'} pole, in units of {unit} rad",
        rf"(\theta / {unit})^2",
    )
    place = Term(
        "place",
        -0.5 if places else -0.05,
        f"np.square(next_state.x_position - {target:g})" if target else "np.square(next_state.x_position)",
        f"cost of the squared distance of the cart from x = {target:g} m",
        rf"(x - {target:g})^2" if target else "x^2",
    )
    return [angle, place]


def bounded_speed(velocity: str, target: float, *, way: str, weight: float, symbol: str) -> Term:
    """Velocity up to somewhat more than the target, so that a large weight does not reward a leap that ends in a fall."""
    return Term(
        "speed",
        weight,
        f"np.minimum({velocity} / {target:g}, {_FURTHER:g})",
        f"1 at {target:g} m/s {way}, 0 at rest, at most {_FURTHER:g}",
        rf"\min({symbol} / {target:g}, {_FURTHER:g})",
    )


def rate_term(
    name: str,
    rate: str,
    target: SpeedTarget,
    *,
    way: str,
    unit: str,
    symbol: str,
    weight: float = 1.0,
    held_weight: float = _HELD,
) -> Term:
    """A rate, or its closeness to an exact target, with the weight ``held_weight``."""
    if not target.hold:
        quantity = f"{'velocity' if unit == 'm/s' else 'rate of turning'}, {unit}"
        return Term(name, weight, rate, f"{way} {quantity}", f"({symbol})" if symbol.startswith("-") else symbol)
    return Term(
        name,
        held_weight,
        f"np.maximum(1.0 - np.abs({rate} - {target.speed:g}) / {target.speed:g}, -1.0)",
        f"1 at {target.speed:g} {unit} {way}, 0 at rest and at twice that, at least -1",
        rf"\max(1 - |{symbol} - {target.speed:g}| / {target.speed:g}, -1)",
    )


def _together(card: EnvironmentCard) -> list[Term]:
    """Both feet off the floor at the same time."""
    feet = foot_heights(card)
    apart = f"np.abs(next_state.{feet[0]} - next_state.{feet[1]})"
    flight = f"np.clip({lowest('next_state', feet)}, 0.0, 0.3)"
    return [
        Term("flight", 5.0, flight, "height of the lowest foot above the floor, m, up to 0.3", r"\min(h_{foot}, 0.3)"),
        Term("together", -1.0, apart, "cost of the difference of the feet's heights, m", r"|h_1 - h_2|"),
    ]


def _upright(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    """What keeps the torso the right way up."""
    if ABILITIES[card.id].steady:
        return _steadiness(intent)
    return [_posture(card)] if tips_over(card) else []


def _steady(intent: ParsedIntent) -> tuple[str, str, str]:
    """How high and upright a humanoid's torso is, between 0 and 1: as Python, in words and as a formula.

    The torso is at 1.4 m in standing, and the episode ends at 1 m.
    """
    span = 0.1 if intent.low else 0.3
    high = f"np.clip((next_state.z_position - 1.0) / {span:g}, 0.0, 1.0)"
    level = "np.clip((next_state.upright - 0.5) / 0.45, 0.0, 1.0)"
    words = f"1 with the torso upright above {1 + span:g} m, 0 at 1 m or 60 degrees from upright"
    return f"{high} * {level}", words, rf"[(z - 1) / {span:g}]_0^1 [(\cos\varphi - 0.5) / 0.45]_0^1"


def _steadiness(intent: ParsedIntent) -> list[Term]:
    """A humanoid's torso high, upright and without sway.

    It falls forward within a second, at walking speed: with a constant bonus for each step a fall earns as much as a second of
    walking, and costs only what would come after it. Here it earns less from its first moment on.
    """
    expression, words, latex = _steady(intent)
    sway = "np.minimum(np.square(next_state.roll_velocity) + np.square(next_state.pitch_velocity), 20.0)"
    about = "cost of the torso's squared rates of roll and pitch, (rad/s)^2, at most 20"
    return [
        Term("steady", 4.0, expression, words, latex),
        Term("sway", -0.05, sway, about, r"\min(\dot\rho^2 + \dot\varphi^2, 20)"),
    ]


def _steady_speed(intent: ParsedIntent, velocity: str, target: SpeedTarget, *, symbol: str) -> list[Term]:
    """A humanoid's speed, as far as the torso is high and upright; beyond walking, more speed earns less.

    The weight is such that a gait that still falls every few seconds earns more than standing still. With as much for
    every m/s of a run, it learns to dive before it learns to walk.
    """
    steady, _, latex = _steady(intent)
    about = "as far as the torso is high and upright"
    if target.hold:
        exact = rate_term("speed", velocity, target, way=intent.direction, unit="m/s", symbol=symbol)
        formula = rf"{exact.latex}\,{latex}"
        return [Term("speed", _STEADY_SPEED, f"{exact.expression} * {steady}", f"{exact.meaning}; {about}", formula)]
    walk = min(target.speed, _WALKING)
    expression = f"np.minimum({velocity} / {walk:g}, 1.0) * {steady}"
    meaning = f"1 from {walk:g} m/s {intent.direction} on, 0 at rest; {about}"
    parts = [Term("speed", _STEADY_SPEED, expression, meaning, rf"\min({symbol} / {walk:g}, 1)\,{latex}")]
    if target.speed > walk:
        span = target.speed - walk
        faster = f"np.clip(({velocity} - {walk:g}) / {span:g}, 0.0, {_FURTHER:g})"
        meaning = (
            f"0 at {walk:g} m/s {intent.direction}, 1 at {target.speed:g} m/s, at most {_FURTHER:g}; {about}, squared"
        )
        formula = rf"[({symbol} - {walk:g}) / {span:g}]_0^{{{_FURTHER:g}}}\,({latex})^2"
        parts.append(Term("faster", _FASTER, f"{faster} * np.square({steady})", meaning, formula))
    return parts


def _posture(card: EnvironmentCard) -> Term:
    """Zero in any running posture, so that it does not affect the gait, and a high cost of lying on the back."""
    expression = f"np.minimum({level('next_state', card)}, 0.5) - 0.5"
    meaning = "0 while the body is within 60 degrees of level, down to -1.5 upside down"
    return Term("posture", 1.0, expression, meaning, r"(\min(\cos\varphi, 0.5) - 0.5)")


def quiet(card: EnvironmentCard) -> Term:
    """A small cost of motion of the joints."""
    meaning = "cost of the mean squared joint rate, (rad/s)^2"
    return Term("quiet", -0.02, mean_squared_rate("next_state.{name}", card), meaning, r"\overline{\dot q^2}")
