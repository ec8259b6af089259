"""Combines the tags of a text to one behaviour."""

from __future__ import annotations

from collections.abc import Iterable

from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.intents import Direction, Gait, Kind, ParsedIntent
from dressage_llm_agent.template.vocabulary import QUALITIES, WORDS_FOR

_GAITS: dict[str, Gait] = {
    **{"run": "run", "walk": "walk", "hop": "hop", "move": "move", "sprint": "run"},
    **{"crawl": "crawl", "swim": "swim"},
}


class UnclearError(Exception):
    """Known words that do not describe one behaviour."""


def assemble(tags: Iterable[str], *, environment: str, speed: float | None) -> ParsedIntent:
    """Return the behaviour that the tags describe.

    :raises UnclearError: with a reason for the user, if the tags describe no behaviour of the environment.
    """
    present = set(tags)
    qualities = {tag.removeprefix("quality:") for tag in present if tag.startswith("quality:")}
    gaits = {tag.removeprefix("gait:") for tag in present if tag.startswith("gait:")}
    if "sprint" in gaits:
        qualities.add("fast")
    if {"fast", "slow"} <= qualities:
        raise UnclearError("it asks for fast and slow at once")
    direction = _direction(present, planar=ABILITIES[environment].planar)
    if "crouch" in present:
        qualities.add("low")
    if ABILITIES[environment].behaviours == ("balance",):
        intent = _balancing(present, qualities, gaits, direction, environment=environment)
    else:
        specific = {_GAITS[gait] for gait in gaits} - {"move"}
        intent = _Reading(environment, present, frozenset(qualities), bool(gaits), specific, direction, speed).intent()
    check(intent)
    return intent


def kind_of(behaviour: str) -> Kind:
    """The kind of a behaviour as `ParsedIntent.behaviour` names it."""
    kinds: dict[str, Kind] = {
        **{"stand": "stand", "rise": "rise", "sit": "sit", "jump": "jump", "flip": "flip"},
        **{"spin": "spin", "reach": "reach", "push": "push", "balance": "balance"},
    }
    return kinds.get(behaviour.partition(" ")[0], "move")


def _direction(tags: set[str], *, planar: bool) -> Direction:
    """The only direction of the tags; in the x-z plane left and right mean backward and forward."""
    ways: set[Direction] = set()
    for tag, way in _WAYS.items():
        if tag in tags:
            ways.add(_PLANAR.get(way, way) if planar else way)
    if len(ways) > 1:
        raise UnclearError("it names two directions")
    return next(iter(ways), "")


_WAYS: dict[str, Direction] = {
    **{"forward": "forward", "flip_forward": "forward", "left": "left", "right": "right"},
    **{"backward": "backward", "back_up": "backward", "flip_backward": "backward"},
}
_PLANAR: dict[Direction, Direction] = {"left": "backward", "right": "forward"}


def _balancing(
    tags: set[str], qualities: set[str], gaits: set[str], direction: Direction, *, environment: str
) -> ParsedIntent:
    """Poles on a cart have one behaviour; a direction is a quality of it."""
    if tags - _BALANCING_TAGS - {f"quality:{name}" for name in QUALITIES["balance"]} or gaits - {"move"}:
        raise UnclearError("a cart can only balance its pole")
    if not tags & {"balance", "stand"} and "upright" not in qualities:
        raise UnclearError("it does not say to balance")
    if direction:
        qualities.add("rightward" if direction in ("forward", "right") else "leftward")
    if len(qualities & {"centred", "rightward", "leftward"}) > 1:
        raise UnclearError("it names two places")
    return ParsedIntent(environment, "balance", qualities=frozenset(qualities))


_BALANCING_TAGS = {"balance", "stand", "gait:move", "forward", "backward", "left", "right"}


class _Reading:
    """The interpretation of tags as one behaviour, for all robots except poles on carts.

    :param gaited: the tags contain a gait, `move` included.
    :param specific: the gaits of the tags without `move`.
    """

    def __init__(
        self,
        environment: str,
        tags: set[str],
        qualities: frozenset[str],
        gaited: bool,
        specific: set[Gait],
        direction: Direction,
        speed: float | None,
    ) -> None:
        self._environment = environment
        self._able = ABILITIES[environment]
        self._tags = tags
        self._qualities = qualities
        self._gaited = gaited
        self._specific = specific
        self._direction = direction
        self._speed = speed

    def intent(self) -> ParsedIntent:
        """The behaviour: the most specific tag decides, and the others must be compatible with it."""
        tags = self._tags
        self._both_feet()
        if tags & {"flip", "flip_forward", "flip_backward"}:
            return self._flip()
        if "push" in tags:
            return self._at_target("push", "object")
        if tags & {"reach", "target", "object"}:
            return self._at_target("reach", "object" if "push" in self._able.behaviours else "target")
        if "spin" in tags:
            return self._spin()
        if "stand_up" in tags and "rise" in self._able.behaviours:
            self._alone({"stand_up", "stand"}, "stand up")
            return self._make("rise")
        if "sit" in tags:
            self._alone({"sit"}, "sit up")
            return self._make("sit")
        if tags & {"stand", "stand_up", "balance"} or ("crouch" in tags and not self._gaited):
            return self._stand()
        return self._motion()

    def _make(self, kind: Kind, gait: Gait = "", direction: Direction = "") -> ParsedIntent:
        return ParsedIntent(self._environment, kind, gait, direction, self._qualities, self._speed)

    def _alone(self, own: set[str], doing: str, *, directed: bool = False) -> None:
        """Refuse tags of other behaviours, and a gait, a speed or, unless ``directed``, a direction."""
        others = self._tags - own - {"in_place", "speed_word"}
        others = {tag for tag in others if not tag.startswith("quality:") and tag not in _WAYS}
        if others or self._specific or self._speed is not None or (self._direction and not directed):
            raise UnclearError(f"it asks to {doing} and for something else at once")

    def _both_feet(self) -> None:
        if "both_feet" in self._tags:
            if not self._tags & {"gait:hop", "jump", "stand"}:
                raise UnclearError("both legs go with hopping, jumping and standing only")
            self._tags.discard("both_feet")

    def _flip(self) -> ParsedIntent:
        self._alone({"flip", "flip_forward", "flip_backward"}, "flip", directed=True)
        if not self._direction:
            raise UnclearError("it does not say whether to flip forward or backward")
        return self._make("flip", direction=self._direction)

    def _at_target(self, kind: Kind, what: str) -> ParsedIntent:
        if what not in self._tags:
            raise UnclearError(f"it does not say to {kind} the {what}")
        others = {"target"} if kind == "push" or what == "target" else set()
        self._alone({kind, what, "gait:move", *others}, kind)
        return self._make(kind)

    def _spin(self) -> ParsedIntent:
        self._alone({"spin", "gait:move"}, "spin", directed=True)
        return self._make("spin", direction=self._direction)

    def _stand(self) -> ParsedIntent:
        if "balance" in self._tags and not self._able.falls:
            raise UnclearError("there is nothing to balance")
        if self._specific or self._direction or self._tags & {"jump", "high"} or self._speed is not None:
            raise UnclearError("it asks to stand and to move at once")
        return self._make("stand")

    def _motion(self) -> ParsedIntent:
        tags, specific, direction = self._tags, self._specific, self._direction
        in_place = bool(tags & {"in_place", "high"})
        if ("jump" in tags and not direction) or (specific == {"hop"} and in_place):
            if direction or self._speed is not None or specific - {"hop"}:
                raise UnclearError("it asks to jump in place and to move at once")
            return self._make("jump")
        if in_place:
            if not self._gaited and "high" not in tags:
                return self._make("stand")
            raise UnclearError("it names a place or a height that does not go with the rest")
        gaits: set[Gait] = specific | ({"hop"} if "jump" in tags else set())
        if len(gaits) > 1:
            raise UnclearError("it names two gaits")
        if not gaits and not direction:
            raise UnclearError(
                "it does not say what to do" if not self._gaited else "it does not say which way to move"
            )
        return self._make("move", next(iter(gaits), "move"), direction or "forward")


def qualities_of(environment: str, kind: Kind) -> frozenset[str]:
    """Return the qualities that a kind of behaviour can have in an environment."""
    able = ABILITIES[environment]
    odd = set() if able.erect or kind == "balance" else {"upright", "low"}
    odd |= set() if able.crouches else {"low"}
    odd |= set() if able.turns else {"unturned"}
    odd |= set() if able.effort else {"energy_saving", "smooth"}
    return QUALITIES[kind] - odd


def check(intent: ParsedIntent) -> None:
    """Check that an environment supports a behaviour and its qualities.

    :raises UnclearError: with a reason for the user, if it does not.
    """
    able = ABILITIES[intent.environment]
    if intent.behaviour not in able.behaviours:
        raise UnclearError(f"it does not support {intent.words!r} there")
    odd = intent.qualities - qualities_of(intent.environment, intent.kind)
    if odd:
        words = ", ".join(WORDS_FOR[quality] for quality in sorted(odd))
        raise UnclearError(f"{words} does not go with {intent.words}")
    if intent.speed is not None and not 0 < intent.speed <= able.max_speed:
        raise UnclearError(f"the speed must be above 0 and at most {able.max_speed:g} m/s")
