"""The vocabulary of the template author, as data.

A phrase stands for one tag. Longer phrases match first, so that ``low effort`` does not match ``low``. Words in `FILLERS` have
no meaning and are removed before phrases are matched; a word in neither table makes the whole intent unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

# Inflections, contractions and synonyms that need no rule of their own.
LEMMAS: Mapping[str, str] = {
    **dict.fromkeys(("runs", "running", "jog", "jogs", "jogging", "gallop", "gallops", "galloping"), "run"),
    **dict.fromkeys(("race", "races", "racing", "trot", "trots", "trotting"), "run"),
    **dict.fromkeys(("sprints", "sprinting", "dash", "dashes", "dashing"), "sprint"),
    **dict.fromkeys(("walks", "walking", "stroll", "strolls", "strolling"), "walk"),
    **dict.fromkeys(("hops", "hopping", "bound", "bounds", "bounding"), "hop"),
    **dict.fromkeys(("crawls", "crawling", "creep", "creeps", "creeping"), "crawl"),
    **dict.fromkeys(("swims", "swimming"), "swim"),
    **dict.fromkeys(("jumps", "jumping", "leap", "leaps", "leaping"), "jump"),
    **dict.fromkeys(("moves", "moving", "go", "goes", "going", "travel", "travels", "travelling", "advance"), "move"),
    **dict.fromkeys(("movement", "movements", "motion", "motions"), "move"),
    **dict.fromkeys(("flips", "flipping", "somersault", "somersaults", "somersaulting"), "flip"),
    **dict.fromkeys(("backflips", "backflipping"), "backflip"),
    **dict.fromkeys(("frontflips", "frontflipping"), "frontflip"),
    **dict.fromkeys(("spins", "spinning", "turn", "turns", "turning", "rotate", "rotates", "rotating"), "spin"),
    **dict.fromkeys(("twirl", "twirls", "twirling", "pivot", "pivots", "pivoting"), "spin"),
    **dict.fromkeys(("reaches", "reaching", "touch", "touches", "touching", "get", "gets", "getting"), "reach"),
    **dict.fromkeys(("pushes", "pushing", "shove", "shoves", "shoving"), "push"),
    **dict.fromkeys(("rises", "rising", "arise"), "rise"),
    **dict.fromkeys(("sits", "sitting", "seated"), "sit"),
    **dict.fromkeys(("goal", "destination"), "target"),
    **dict.fromkeys(("forwards", "ahead", "onward", "onwards"), "forward"),
    **dict.fromkeys(("backwards", "reverse", "rearward", "rearwards"), "backward"),
    **dict.fromkeys(("rightward", "rightwards", "clockwise"), "right"),
    **dict.fromkeys(("leftward", "leftwards", "sideways", "counterclockwise", "anticlockwise"), "left"),
    **dict.fromkeys(("quick", "quickly", "rapidly", "rapid", "swiftly", "faster", "fastest", "speedily"), "fast"),
    **dict.fromkeys(("quicker", "speedier"), "fast"),
    **dict.fromkeys(("slowly", "leisurely", "unhurriedly", "slower"), "slow"),
    **dict.fromkeys(("smoothly", "smoother", "gentle", "gently", "softly", "fluidly", "gracefully"), "smooth"),
    **dict.fromkeys(("gentler", "softer"), "smooth"),
    **dict.fromkeys(("efficiently", "economically", "economical"), "efficient"),
    **dict.fromkeys(("stands", "standing"), "stand"),
    **dict.fromkeys(
        ("motionless", "motionlessly", "stationary", "immobile", "stop", "stops", "halt", "halts"), "still"
    ),
    **dict.fromkeys(("stopping", "halting", "drift", "drifts", "float", "floats", "rest", "rests"), "still"),
    **dict.fromkeys(("poles", "pendulums"), "pole"),
    **dict.fromkeys(("legs", "feet"), "leg"),
    **dict.fromkeys(("balances", "balancing", "balanced"), "balance"),
    **dict.fromkeys(("vertical", "vertically", "erect"), "upright"),
    **dict.fromkeys(("falls", "falling", "topple", "toppling"), "fall"),
    **dict.fromkeys(("tips", "tipping"), "tip"),
    **dict.fromkeys(("saves", "saving", "conserve", "conserving"), "save"),
    **dict.fromkeys(("wasting", "wastes"), "waste"),
    **dict.fromkeys(("highly", "higher", "highest"), "high"),
    **dict.fromkeys(("max", "maximal", "top", "full"), "maximum"),
    **dict.fromkeys(("minimum", "least", "less", "minimal"), "little"),
    **dict.fromkeys(("velocity", "pace"), "speed"),
    **dict.fromkeys(("effort", "force", "torque", "power"), "energy"),
    **dict.fromkeys(("center", "middle", "centred", "centered"), "centre"),
    **dict.fromkeys(("without", "never", "no", "avoid", "avoiding", "dont", "cannot"), "not"),
    **dict.fromkeys(("crouched", "lowered", "lower"), "low"),
    **dict.fromkeys(("crouches", "crouching", "squat", "squats", "squatting"), "crouch"),
    **dict.fromkeys(("puck", "cylinder"), "object"),
}

_FILLERS = """
a an the it its your you my i we this that and while with as so just please to of in on at by for be is should must can
could want would like need make makes making let teach train learn have get do does keep keeps keeping stay stays staying
hold holds holding remain remains maintain robot agent creature body torso itself possible using use about around
approximately very really always all time whole episode over ground floor throughout again perform
round straight more bit even much now
"""
FILLERS = frozenset(_FILLERS.split())

# Phrases by tag, written in lemmas and without fillers.
PHRASES: Mapping[str, tuple[str, ...]] = {
    "gait:run": ("run",),
    "gait:walk": ("walk",),
    "gait:hop": ("hop",),
    "gait:move": ("move",),
    "gait:sprint": ("sprint",),
    "gait:crawl": ("crawl",),
    "gait:swim": ("swim",),
    "jump": ("jump", "jump up down", "jump up"),
    "flip": ("flip",),
    "flip_backward": ("backflip",),
    "flip_forward": ("frontflip", "front flip"),
    "spin": ("spin",),
    "reach": ("reach",),
    "push": ("push",),
    "target": ("target",),
    "object": ("object",),
    "crouch": ("crouch",),
    "forward": ("forward",),
    "backward": ("backward", "back"),
    "left": ("left", "counter right"),
    "right": ("right",),
    "back_up": ("back up",),
    "stand": ("stand", "still", "stand still", "not move", "come still"),
    "stand_up": ("stand up", "reach up", "rise"),
    "sit": ("sit", "sit up"),
    "both_feet": ("both leg", "both leg together", "leg together"),
    "balance": ("balance",),
    "in_place": ("place", "spot"),
    "high": ("high", "maximum height", "height"),
    "quality:fast": ("fast", "high speed", "maximum speed", "full speed"),
    "quality:slow": ("slow", "low speed", "slow speed"),
    "quality:smooth": ("smooth", "not jerking", "not jerky move"),
    "quality:energy_saving": (
        "efficient",
        "energy efficient",
        "save energy",
        "little energy",
        "low energy",
        "energy saving",
        "energy save",
        "not waste energy",
    ),
    "quality:upright": (
        "upright",
        "not fall",
        "not fall down",
        "not tip",
        "not pole fall",
        "not pendulum fall",
        "not double pendulum fall",
        "not tumble",
    ),
    "quality:unturned": ("not spin",),
    "quality:low": ("low", "close down", "close"),
    "quality:centred": ("centre", "centre rail"),
    "speed_word": ("speed",),
}

MOVING = frozenset({"fast", "slow", "smooth", "energy_saving", "upright", "low", "unturned"})
QUALITIES: Mapping[str, frozenset[str]] = {
    "move": MOVING,
    "stand": frozenset({"smooth", "energy_saving", "upright", "low"}),
    "rise": frozenset({"fast", "smooth", "energy_saving"}),
    "sit": frozenset({"smooth", "energy_saving", "upright"}),
    "jump": frozenset({"smooth", "energy_saving", "upright"}),
    "flip": frozenset({"fast", "smooth", "energy_saving"}),
    "spin": MOVING - {"unturned"},
    "reach": frozenset({"fast", "smooth", "energy_saving"}),
    "push": frozenset({"fast", "smooth", "energy_saving"}),
    "balance": frozenset({"smooth", "energy_saving", "upright", "centred", "rightward", "leftward"}),
}
"""Qualities that each kind of behaviour can have."""

WORDS_FOR: Mapping[str, str] = {
    "fast": "fast",
    "slow": "slowly",
    "smooth": "smoothly",
    "energy_saving": "with little energy",
    "upright": "upright",
    "low": "low",
    "unturned": "without turning",
    "centred": "at the centre of the rail",
    "rightward": "to the right",
    "leftward": "to the left",
}
"""A phrase for each quality, for messages to the user and for the first line of rewards."""
