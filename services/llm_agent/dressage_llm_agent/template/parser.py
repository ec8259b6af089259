"""Words to a `ParsedIntent`, or a refusal that says what is known.

The parser is strict: every word must be part of a known phrase, a noun for the robot or a filler. An unknown word may
change the meaning of the whole (*run forward and then* …), so one is enough to decline. Negations are understood only where
they are part of a known phrase (*without falling*).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dressage.errors import InvalidArgument

from dressage_llm_agent.template.intents import Gait, Kind, ParsedIntent
from dressage_llm_agent.template.vocabulary import (
    FILLERS,
    HALF_CHEETAH,
    INVERTED_PENDULUM,
    KNOWN_BEHAVIOURS,
    LEMMAS,
    MAX_SPEED,
    PHRASES,
    QUALITIES,
    SUBJECTS,
    WORDS_FOR,
)

_SPEED = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*"
    r"(?:(?P<metric>m\s*/\s*s(?:ec)?|mps|met(?:er|re)s?\s*(?:per|a|/)\s*sec(?:ond)?s?)|(?P<hourly>km\s*/\s*h|kmh|kph))\b"
)
_KMH = 1 / 3.6
_SHOWN_INTENT = 120
_BY_PHRASE = {tuple(phrase.split()): tag for tag, phrases in PHRASES.items() for phrase in phrases}
_LONGEST_PHRASE = max(map(len, _BY_PHRASE))
_GAITS: dict[str, Gait] = {"run": "run", "walk": "walk", "hop": "hop", "move": "move", "sprint": "run"}


def parse(text: str, environment: str) -> ParsedIntent:
    """What ``text`` asks for.

    :param environment: id of the environment.
    :raises InvalidArgument: with reason ``TEMPLATE_UNKNOWN_INTENT`` and a list of what is known for the environment.
    """
    if environment not in KNOWN_BEHAVIOURS:
        known = ", ".join(KNOWN_BEHAVIOURS)
        raise _decline(text, environment, f"it knows no behaviour of this environment, only of {known}")
    rest, speed = _take_speed(_normalise(text))
    tags, unknown = _tags(rest, environment)
    if unknown:
        shown = ", ".join(repr(word[:30]) for word in unknown[:6])
        raise _decline(text, environment, f"it does not understand {shown} here")
    try:
        return _assemble(tags, environment=environment, speed=speed)
    except _UnclearError as unclear:
        raise _decline(text, environment, str(unclear)) from None


def describe_known(environment: str) -> str:
    """What can be asked for in an environment, in words."""
    behaviours = KNOWN_BEHAVIOURS.get(environment)
    if not behaviours:
        return "; ".join(f"{name}: {', '.join(known)}" for name, known in KNOWN_BEHAVIOURS.items())
    kinds = {_kind_of(behaviour) for behaviour in behaviours}
    names = sorted({WORDS_FOR[quality] for kind in kinds for quality in QUALITIES[kind]})
    speed = " or at a speed such as 'at 2 m/s'" if "move" in kinds else ""
    return f"{', '.join(behaviours)}; each of these {', '.join(names)}{speed}, where that makes sense"


class _UnclearError(Exception):
    """Words that are known but do not make one behaviour."""


def _decline(text: str, environment: str, why: str) -> InvalidArgument:
    shown = " ".join(text.split())
    shown = shown if len(shown) <= _SHOWN_INTENT else shown[: _SHOWN_INTENT - 3] + "..."
    known = describe_known(environment)
    message = (
        f"the built-in author cannot write {shown!r} for {environment}: {why}. It knows: {known}. "
        "For anything else configure a language model."
    )
    return InvalidArgument(
        message,
        field="intent",
        value=shown,
        expected=known,
        reason="TEMPLATE_UNKNOWN_INTENT",
        metadata={"environment": environment, "known": known},
    )


def _normalise(text: str) -> str:
    lowered = text.lower().replace("’", "'")
    lowered = lowered.replace("n't", " not").replace("half-cheetah", "halfcheetah")
    return lowered.replace("-", " ")


def _take_speed(text: str) -> tuple[str, float | None]:
    """The text without its speed, and the speed in m/s."""
    match = _SPEED.search(text)
    if match is None:
        return text, None
    factor = _KMH if match["hourly"] else 1.0
    return text[: match.start()] + " " + text[match.end() :], float(match["number"]) * factor


def _tags(text: str, environment: str) -> tuple[list[str], list[str]]:
    """Tags of the phrases found, and the words that belong to none.

    Two readings of the words are tried: with the nouns for the robot (*not pole fall*) and without.
    """
    words = [LEMMAS.get(word, word) for word in re.findall(r"[a-z]+|\d+(?:\.\d+)?", text)]
    words = [word for word in words if word not in FILLERS]
    tags: list[str] = []
    unknown: list[str] = []
    position = 0
    while position < len(words):
        for length in range(min(_LONGEST_PHRASE, len(words) - position), 0, -1):
            tag = _BY_PHRASE.get(tuple(words[position : position + length]))
            if tag is not None:
                tags.append(tag)
                position += length
                break
        else:
            if words[position] not in SUBJECTS[environment]:
                unknown.append(words[position])
            position += 1
    return tags, unknown


def _assemble(tags: Iterable[str], *, environment: str, speed: float | None) -> ParsedIntent:
    found = set(tags)
    qualities = {tag.removeprefix("quality:") for tag in found if tag.startswith("quality:")}
    gaits = [tag.removeprefix("gait:") for tag in found if tag.startswith("gait:")]
    if "sprint" in gaits:
        qualities.add("fast")
    if {"fast", "slow"} <= qualities:
        raise _UnclearError("it asks for fast and slow at once")
    if "forward" in found and found & {"backward", "back_up"}:
        raise _UnclearError("it names two directions")
    direction = -1 if found & {"backward", "back_up"} else 1 if "forward" in found else 0
    if environment == INVERTED_PENDULUM:
        intent = _balancing(found, qualities, gaits, direction)
    else:
        intent = _walking(found, qualities, gaits, direction, environment=environment, speed=speed)
    _check(intent)
    return intent


def _balancing(found: set[str], qualities: set[str], gaits: list[str], direction: int) -> ParsedIntent:
    """The pole on a cart has one behaviour; moving is a quality of it."""
    if found & {"jump", "high", "in_place"} or set(gaits) - {"move"}:
        raise _UnclearError("a cart can only balance its pole")
    if not found & {"balance", "stand"} and "upright" not in qualities:
        raise _UnclearError("it does not say to balance")
    if direction:
        qualities.add("rightward" if direction > 0 else "leftward")
    if len(qualities & {"centred", "rightward", "leftward"}) > 1:
        raise _UnclearError("it names two places")
    return ParsedIntent(INVERTED_PENDULUM, "balance", qualities=frozenset(qualities))


def _walking(
    found: set[str], qualities: set[str], gaits: list[str], direction: int, *, environment: str, speed: float | None
) -> ParsedIntent:
    specific = {_GAITS[gait] for gait in gaits} - {"move"}
    in_place = bool(found & {"in_place", "high"})
    qualities_ = frozenset(qualities)
    if found & {"stand", "balance"}:
        if "balance" in found and environment == HALF_CHEETAH:
            raise _UnclearError("a cheetah has nothing to balance")
        if specific or direction or "jump" in found or "high" in found or speed is not None:
            raise _UnclearError("it asks to stand and to move at once")
        return ParsedIntent(environment, "stand", qualities=qualities_)
    if ("jump" in found and not direction) or (specific == {"hop"} and in_place):
        if direction or speed is not None or specific - {"hop"}:
            raise _UnclearError("it asks to jump in place and to move at once")
        return ParsedIntent(environment, "jump", qualities=qualities_)
    if in_place:
        if not gaits and "high" not in found:
            return ParsedIntent(environment, "stand", qualities=qualities_)
        raise _UnclearError("it names a place or a height that does not go with the rest")
    if "jump" in found:
        specific.add("hop")
    if len(specific) > 1:
        raise _UnclearError("it names two gaits")
    if not specific and not direction:
        raise _UnclearError("it does not say what to do" if not gaits else "it does not say which way to move")
    gait: Gait = next(iter(specific), "move")
    return ParsedIntent(environment, "move", gait, direction or 1, qualities_, speed)


def _check(intent: ParsedIntent) -> None:
    if intent.behaviour not in KNOWN_BEHAVIOURS[intent.environment]:
        raise _UnclearError(f"it does not know how to {intent.behaviour} there")
    odd = intent.qualities - QUALITIES[intent.kind]
    if odd:
        words = ", ".join(WORDS_FOR[quality] for quality in sorted(odd))
        raise _UnclearError(f"{words} does not go with {intent.behaviour}")
    limit = MAX_SPEED.get(intent.environment, 0.0)
    if intent.speed is not None and not 0 < intent.speed <= limit:
        raise _UnclearError(f"the speed must be above 0 and at most {limit:g} m/s")


def _kind_of(behaviour: str) -> Kind:
    kinds: dict[str, Kind] = {"stand": "stand", "jump": "jump", "balance": "balance"}
    return kinds.get(behaviour, "move")
