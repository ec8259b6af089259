"""Steering notes such as ``faster`` or ``smoother and lower``: requests for a quality that the behaviour can have.

A new quality is added to the intent of the reward; the weight of an existing one grows. The diagnosis of the revision reports
for each note whether it was addressed.
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
# Terms whose weight grows where the intent has the quality already, such as faster than fast: the first that the reward has.
_EMPHASIS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "fast": (("speed", "turning", "distance", "height"), 2.0),
    "slow": (("speed", "turning"), 2.0),
    "smooth": (("smooth",), 3.0),
    "energy_saving": (("effort",), 2.0),
    "upright": (("upright", "angle"), 2.0),
    "low": (("low",), 2.0),
    "unturned": (("unturned", "heading"), 2.0),
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
    """The content of notes.

    :param qualities: requested qualities that the behaviour can have.
    :param summary: the outcome for each note, for the diagnosis; begins with a space unless it is empty.
    """

    qualities: frozenset[str]
    summary: str


def read_notes(notes: Sequence[str], intent: ParsedIntent) -> Steering:
    """Parse notes about a behaviour; of two that contradict each other, the later one counts."""
    qualities: frozenset[str] = frozenset()
    summary = ""
    for note in notes:
        quote = " ".join(note.split())[:_SHOWN_NOTE]
        requested = parse_note(note, intent.environment)
        if requested is None:
            summary += f" The note {quote!r} was not addressed: template/v1 does not understand it."
            continue
        try:
            check(_with_qualities(intent, requested))
        except UnclearError as unclear:
            summary += f" The note {quote!r} was not addressed: {unclear}."
            continue
        qualities = _without_excluded(qualities, requested) | requested
        summary += f" The note {quote!r} is addressed: {_in_words(requested)}."
    return Steering(qualities, summary)


def steer(
    intent: ParsedIntent, plan: RewardPlan, qualities: frozenset[str], card: EnvironmentCard
) -> tuple[ParsedIntent, RewardPlan, str]:
    """Return the intent and the reward with more of some qualities, and a description of the change.

    Each term keeps the factor between its weight and its first value, which earlier revisions chose.
    """
    revised = _with_qualities(intent, qualities)
    first = {term.name: term.weight for term in plan_reward(intent, card).terms}
    before = {term.name: term for term in plan.terms}
    terms = {
        term.name: replace(term, weight=term.weight * before[term.name].weight / first[term.name])
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
    description = f"{'; '.join(changes) or 'change nothing'}, as asked for: {_in_words(qualities)}"
    return revised, RewardPlan(tuple(terms.values())), description


def _with_qualities(intent: ParsedIntent, added: frozenset[str]) -> ParsedIntent:
    """The intent with more qualities; `fast` and `slow` replace a target speed."""
    speed = None if added & {"fast", "slow"} else intent.speed
    return replace(intent, qualities=_without_excluded(intent.qualities, added) | added, speed=speed)


def _without_excluded(qualities: frozenset[str], added: Iterable[str]) -> frozenset[str]:
    return qualities.difference(*(_EXCLUDED.get(quality, frozenset()) for quality in added))


def _in_words(qualities: Iterable[str]) -> str:
    return ", ".join(WORDS_FOR[quality] for quality in sorted(qualities))
