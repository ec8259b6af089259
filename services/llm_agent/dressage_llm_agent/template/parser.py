"""Parses words to a `ParsedIntent`, or refuses them with a list of known behaviours.

The parser is strict: every word must be part of a known phrase, a noun for the robot or a filler. One unknown word may change
the meaning of the whole (*run forward and then* …), so the intent is refused. Negations are accepted only as part of a known
phrase (*without falling*).
"""

from __future__ import annotations

import re

from dressage.errors import InvalidArgument

from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.assembly import UnclearError, assemble, kind_of, qualities_of
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.vocabulary import FILLERS, LEMMAS, PHRASES, WORDS_FOR

_SPEED = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*"
    r"(?:(?P<metric>m\s*/\s*s(?:ec)?|mps|met(?:er|re)s?\s*(?:per|a|/)\s*sec(?:ond)?s?)|(?P<hourly>km\s*/\s*h|kmh|kph))\b"
)
_KMH = 1 / 3.6
_SHOWN_INTENT = 120
_BY_PHRASE = {tuple(phrase.split()): tag for tag, phrases in PHRASES.items() for phrase in phrases}
_LONGEST_PHRASE = max(map(len, _BY_PHRASE))


def parse(text: str, environment: str) -> ParsedIntent:
    """Return the behaviour that a text describes.

    :param environment: id of the environment.
    :raises InvalidArgument: ``TEMPLATE_UNKNOWN_INTENT``, with a list of the environment's known behaviours.
    """
    if environment not in ABILITIES:
        raise _decline(text, environment, "it supports no behaviour of this environment")
    rest, speed = _take_speed(_normalise(text))
    tags, unknown = _tags(rest, environment)
    if unknown:
        words = ", ".join(repr(word[:30]) for word in unknown[:6])
        raise _decline(text, environment, f"it does not understand {words} here")
    try:
        return assemble(tags, environment=environment, speed=speed)
    except UnclearError as unclear:
        raise _decline(text, environment, str(unclear)) from None


def parse_note(text: str, environment: str) -> frozenset[str] | None:
    """Return the qualities that a steering note requests, such as ``faster`` or ``a bit smoother and lower``.

    :return: None for any other text. The vocabulary is that of intents, limited to qualities.
    """
    tags, unknown = _tags(_normalise(text), environment)
    qualities = frozenset(tag.removeprefix("quality:") for tag in tags if tag.startswith("quality:"))
    others = [tag for tag in tags if not tag.startswith("quality:") and tag not in ("speed_word", "gait:move")]
    return None if unknown or others or not qualities or {"fast", "slow"} <= qualities else qualities


def describe_known(environment: str) -> str:
    """Return a list of an environment's known behaviours, as text; of the environments that have some, where it has none."""
    able = ABILITIES.get(environment)
    if able is None:
        return f"behaviours of {', '.join(ABILITIES)}"
    kinds = {kind_of(behaviour) for behaviour in able.behaviours}
    qualities = {quality for kind in kinds for quality in qualities_of(environment, kind)}
    names = sorted(WORDS_FOR[quality] for quality in qualities)
    speed = f" or at a speed such as 'at {min(able.max_speed / 2, 2.0):g} m/s'" if "move" in kinds else ""
    return f"{', '.join(able.behaviours)}; each of these {', '.join(names)}{speed}, where that makes sense"


def _decline(text: str, environment: str, why: str) -> InvalidArgument:
    intent = " ".join(text.split())
    intent = intent if len(intent) <= _SHOWN_INTENT else intent[: _SHOWN_INTENT - 3] + "..."
    supported = describe_known(environment)
    message = (
        f"template/v1 cannot write {intent!r} for {environment}: {why}. It supports: {supported}. "
        "For others, name a language model, or train a reward of your own (`dressage train`)."
    )
    return InvalidArgument(
        message,
        field="intent",
        value=intent,
        expected=supported,
        reason="TEMPLATE_UNKNOWN_INTENT",
        metadata={"environment": environment, "known": supported},
    )


def _normalise(text: str) -> str:
    lowered = text.lower().replace("’", "'")
    lowered = lowered.replace("n't", " not").replace("half-cheetah", "halfcheetah")
    return lowered.replace("-", " ").replace("go1", "quadruped")


def _take_speed(text: str) -> tuple[str, float | None]:
    """The text without its speed, and the speed in m/s."""
    match = _SPEED.search(text)
    if match is None:
        return text, None
    factor = _KMH if match["hourly"] else 1.0
    return text[: match.start()] + " " + text[match.end() :], float(match["number"]) * factor


def _tags(text: str, environment: str) -> tuple[list[str], list[str]]:
    """Tags of the matched phrases, and the words that belong to none; nouns for the robot may be part of a phrase."""
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
            if words[position] not in ABILITIES[environment].nouns:
                unknown.append(words[position])
            position += 1
    return tags, unknown
