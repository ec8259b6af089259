"""The words that the template author knows, as data.

A phrase stands for one tag. Longer phrases are tried first, so ``low effort`` is no ``low``. Words in `FILLERS` carry no
meaning here and are dropped before phrases are matched; a word that is in neither table makes the whole intent unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

HALF_CHEETAH = "HalfCheetah-v5"
HOPPER = "Hopper-v5"
INVERTED_PENDULUM = "InvertedPendulum-v5"

# Inflections, contractions and synonyms that need no rule of their own.
LEMMAS: Mapping[str, str] = {
    **dict.fromkeys(("runs", "running", "jog", "jogs", "jogging", "gallop", "gallops", "galloping"), "run"),
    **dict.fromkeys(("race", "races", "racing", "trot", "trots", "trotting"), "run"),
    **dict.fromkeys(("sprints", "sprinting", "dash", "dashes", "dashing"), "sprint"),
    **dict.fromkeys(("walks", "walking", "stroll", "strolls", "strolling"), "walk"),
    **dict.fromkeys(("hops", "hopping"), "hop"),
    **dict.fromkeys(("jumps", "jumping", "leap", "leaps", "leaping"), "jump"),
    **dict.fromkeys(("moves", "moving", "go", "goes", "going", "travel", "travels", "travelling", "advance"), "move"),
    **dict.fromkeys(("movement", "movements", "motion", "motions"), "move"),
    **dict.fromkeys(("forwards", "ahead", "onward", "onwards", "right", "rightward", "rightwards"), "forward"),
    **dict.fromkeys(("backwards", "reverse", "left", "leftward", "leftwards", "rearward", "rearwards"), "backward"),
    **dict.fromkeys(("quick", "quickly", "rapidly", "rapid", "swiftly", "faster", "fastest", "speedily"), "fast"),
    **dict.fromkeys(("slowly", "leisurely", "unhurriedly"), "slow"),
    **dict.fromkeys(("smoothly", "gentle", "gently", "softly", "fluidly", "gracefully"), "smooth"),
    **dict.fromkeys(("efficiently", "economically", "economical"), "efficient"),
    **dict.fromkeys(("stands", "standing"), "stand"),
    **dict.fromkeys(("motionless", "motionlessly", "stationary", "immobile"), "still"),
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
    **dict.fromkeys(("crouched", "crouching", "lowered"), "low"),
}

_FILLERS = """
a an the it its your you my i we this that and while with as so just please to of in on at by for be is should must can
could want would like need make makes making let teach train learn have get do does keep keeps keeping stay stays staying
hold holds holding remain remains maintain robot agent creature body torso itself possible using use about around
approximately very really always all time whole episode over ground floor throughout
"""
FILLERS = frozenset(_FILLERS.split())

# Phrases by tag, written in lemmas and without fillers.
PHRASES: Mapping[str, tuple[str, ...]] = {
    "gait:run": ("run",),
    "gait:walk": ("walk",),
    "gait:hop": ("hop",),
    "gait:move": ("move",),
    "gait:sprint": ("sprint",),
    "jump": ("jump",),
    "forward": ("forward",),
    "backward": ("backward", "back"),
    "back_up": ("back up",),
    "stand": ("stand", "still", "stand still", "not move", "stand up"),
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
        "not tumble",
    ),
    "quality:low": ("low", "close down"),
    "quality:centred": ("centre", "centre rail"),
    "speed_word": ("speed",),
}

SUBJECTS: Mapping[str, frozenset[str]] = {
    HALF_CHEETAH: frozenset({"cheetah", "half", "halfcheetah", "runner"}),
    HOPPER: frozenset({"hopper"}),
    INVERTED_PENDULUM: frozenset({"pole", "pendulum", "cart", "rail", "inverted"}),
}
"""Nouns for the robot itself; another environment's nouns make an intent unknown."""

KNOWN_BEHAVIOURS: Mapping[str, tuple[str, ...]] = {
    HALF_CHEETAH: (
        "run forward",
        "walk forward",
        "move forward",
        "run backward",
        "walk backward",
        "move backward",
        "stand",
    ),
    HOPPER: (
        *("hop forward", "walk forward", "run forward", "move forward"),
        *("hop backward", "walk backward", "run backward", "move backward"),
        *("stand", "jump"),
    ),
    INVERTED_PENDULUM: ("balance",),
}

MOVING = frozenset({"fast", "slow", "smooth", "energy_saving", "upright", "low"})
QUALITIES: Mapping[str, frozenset[str]] = {
    "move": MOVING,
    "stand": frozenset({"smooth", "energy_saving", "upright", "low"}),
    "jump": frozenset({"smooth", "energy_saving", "upright"}),
    "balance": frozenset({"smooth", "energy_saving", "upright", "centred", "rightward", "leftward"}),
}
"""Qualities that each kind of behaviour can have."""

MAX_SPEED: Mapping[str, float] = {HALF_CHEETAH: 12.0, HOPPER: 5.0}
"""Highest target speed in m/s that is taken at its word."""

WORDS_FOR: Mapping[str, str] = {
    "fast": "fast",
    "slow": "slowly",
    "smooth": "smoothly",
    "energy_saving": "with little energy",
    "upright": "upright",
    "low": "low",
    "centred": "at the centre of the rail",
    "rightward": "to the right",
    "leftward": "to the left",
}
"""How a quality is said back to the user."""
