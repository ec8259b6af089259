"""Steering notes: ``faster``, ``smoother and lower``; heeded where they ask for a quality that goes with the behaviour.

A new quality joins the intent of the reward; one that is part of it already weighs more. What is not understood is said to be
unheeded, since a person who steers waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.assembly import UnclearError, check
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.parser import parse_note
from dressage_llm_agent.template.plans import RewardPlan
from dressage_llm_agent.template.reward_plan import plan_reward
from dressage_llm_agent.template.vocabulary import WORDS_FOR

_SHOWN_NOTE = 80
# What weighs more where a quality alone changes nothing: faster than fast, say. The first term that there is.
_EMPHASIS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "fast": (("speed", "turning", "distance", "height"), 2.0),
    "slow": (("speed", "turning"), 2.0),
    "smooth": (("smooth",), 3.0),
    "energy_saving": (("effort",), 2.0),
    "upright": (("upright", "angle"), 2.0),
    "low": (("low",), 2.0),
    "centred": (("place",), 2.0),
    "rightward": (("place",), 2.0),
    "leftward": (("place",), 2.0),
}
_PLACES = ("centred", "rightward", "leftward")
_EXCLUDED: Mapping[str, frozenset[str]] = {
    "fast": frozenset({"slow"}),
    "slow": frozenset({"fast"}),
    **{place: frozenset(_PLACES) - {place} for place in _PLACES},
}


@dataclass(frozen=True)
class Steering:
    """Notes, read.

    :param qualities: what they ask for, as far as it goes with the behaviour.
    :param said: what became of each note, for the diagnosis; begins with a space unless it is empty.
    """

    qualities: frozenset[str]
    said: str


def read_notes(notes: Sequence[str], intent: ParsedIntent) -> Steering:
    """Reads notes on a behaviour; where two ask for the opposite, the later one counts."""
    qualities: frozenset[str] = frozenset()
    said = ""
    for note in notes:
        shown = " ".join(note.split())[:_SHOWN_NOTE]
        asked = parse_note(note, intent.environment)
        if asked is None:
            said += f" The note {shown!r} is not understood by the built-in author and was not heeded."
            continue
        try:
            check(_with_qualities(intent, asked))
        except UnclearError as unclear:
            said += f" The note {shown!r} was not heeded: {unclear}."
            continue
        qualities = _without_excluded(qualities, asked) | asked
        said += f" The note {shown!r} is heeded: {_in_words(asked)}."
    return Steering(qualities, said)


def steered(
    intent: ParsedIntent, plan: RewardPlan, qualities: frozenset[str], card: EnvironmentCard
) -> tuple[ParsedIntent, RewardPlan, str]:
    """The intent and the reward with more of some qualities, and the change in words.

    What revisions have learnt about the weights is kept: each term keeps its factor over the weight it began with.
    """
    revised = _with_qualities(intent, qualities)
    begun = {term.name: term.weight for term in plan_reward(intent, card).terms}
    before = {term.name: term for term in plan.terms}
    terms = {
        term.name: replace(term, weight=term.weight * before[term.name].weight / begun[term.name])
        if term.name in before
        else term
        for term in plan_reward(revised, card).terms
    }
    changes = []
    for quality in sorted(qualities):
        names, factor = _EMPHASIS[quality]
        name = next((name for name in names if name in terms), None)
        if name is None:
            continue
        if name not in before:
            changes.append(f"add the term {name}")
        elif terms[name] == before[name]:
            terms[name] = replace(terms[name], weight=terms[name].weight * factor)
            changes.append(f"multiply the weight of {name} by {factor:g}, to {terms[name].weight:g}")
        else:
            changes.append(f"change the term {name}")
    words = f"{'; '.join(changes) or 'change nothing'}, as asked for: {_in_words(qualities)}"
    return revised, RewardPlan(tuple(terms.values())), words


def _with_qualities(intent: ParsedIntent, asked: frozenset[str]) -> ParsedIntent:
    """The intent with more qualities; a speed that was named gives way to another one asked for."""
    speed = None if asked & {"fast", "slow"} else intent.speed
    return replace(intent, qualities=_without_excluded(intent.qualities, asked) | asked, speed=speed)


def _without_excluded(qualities: frozenset[str], asked: Iterable[str]) -> frozenset[str]:
    return qualities.difference(*(_EXCLUDED.get(quality, frozenset()) for quality in asked))


def _in_words(qualities: Iterable[str]) -> str:
    return ", ".join(WORDS_FOR[quality] for quality in sorted(qualities))
