"""Lessons of a session's iterations: tiered, bounded and consolidated. Pure.

A lesson has the number of its iteration and the tier that the reviser sets, by default SOFT. A repeated lesson (most of its
words are equal) is not listed twice: the second iteration with the lesson raises its tier to STRONG and the third to HARD.
A reviser may change the tier of an earlier lesson. A SOFT lesson is retired if the iterations that followed from it scored
lower than their parents at least twice as often as higher.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

TIERS = {
    "HARD": pb.Lesson.TIER_HARD,
    "STRONG": pb.Lesson.TIER_STRONG,
    "SOFT": pb.Lesson.TIER_SOFT,
    "RETIRED": pb.Lesson.TIER_RETIRED,
}
MAX_HELD = 20
"""Maximum number of active lessons; the softest and oldest are dropped first."""
MAX_RETIRED = 10
_SAME = 0.6
_MIN_FAILURES = 2
_MARGIN = 0.02
_WORD = re.compile(r"[a-z0-9_]+")
_STOP = frozenset(
    {
        *("a", "an", "the", "is", "are", "be", "to", "of", "and", "or", "in", "on", "at", "it", "its", "that", "this"),
        *("as", "by", "for", "with", "so", "than", "then"),
    }
)


@dataclass(frozen=True)
class TieredLesson:
    """A lesson with its tier and the iterations that support it."""

    number: int
    text: str
    tier: int
    support: tuple[int, ...]

    def message(self, session: str) -> pb.Lesson:
        """Convert to the message of the API.

        :param session: ``sessions/{session}``.
        """
        return pb.Lesson(
            tier=self.tier,  # type: ignore[arg-type]
            text=self.text,
            iteration=f"{session}/iterations/{self.number}",
            number=self.number,
            support=len(self.support),
        )

    @property
    def tier_name(self) -> str:
        """HARD, STRONG, SOFT or RETIRED."""
        return next(name for name, value in TIERS.items() if value == self.tier)


def lessons(iterations: Sequence[v1.Iteration]) -> list[TieredLesson]:
    """List the lessons of a session, highest tier first, retired ones last.

    :param iterations: in order.
    """
    entries: list[TieredLesson] = []
    for iteration in iterations:
        for update in iteration.lesson_updates:
            entries = [_update(entry, update) for entry in entries]
        if iteration.lesson.strip():
            entries = _add(entries, iteration)
    entries = [_retire_if_refuted(entry, iterations) for entry in entries]
    entries.sort(key=lambda entry: (entry.tier, -entry.number))
    in_force = [entry for entry in entries if entry.tier != pb.Lesson.TIER_RETIRED][:MAX_HELD]
    return in_force + [entry for entry in entries if entry.tier == pb.Lesson.TIER_RETIRED][:MAX_RETIRED]


def in_force(iterations: Sequence[v1.Iteration]) -> list[TieredLesson]:
    """List the lessons that are not retired."""
    return [entry for entry in lessons(iterations) if entry.tier != pb.Lesson.TIER_RETIRED]


def _update(entry: TieredLesson, update: v1.LessonUpdate) -> TieredLesson:
    if update.number not in entry.support or update.tier not in TIERS:
        return entry
    return replace(entry, tier=TIERS[update.tier])


def _add(entries: list[TieredLesson], iteration: v1.Iteration) -> list[TieredLesson]:
    tier = TIERS.get(iteration.lesson_tier, pb.Lesson.TIER_SOFT)
    for place, entry in enumerate(entries):
        if similarity(entry.text, iteration.lesson) >= _SAME:
            support = (*entry.support, iteration.number)
            firmer = pb.Lesson.TIER_HARD if len(support) >= 3 else pb.Lesson.TIER_STRONG
            merged = replace(entry, tier=min(entry.tier, tier, firmer), support=support, text=iteration.lesson.strip())
            return [*entries[:place], merged, *entries[place + 1 :]]
    return [*entries, TieredLesson(iteration.number, iteration.lesson.strip(), tier, (iteration.number,))]


def _retire_if_refuted(entry: TieredLesson, iterations: Sequence[v1.Iteration]) -> TieredLesson:
    """Retire a SOFT lesson if most iterations that followed from it scored lower than their parents."""
    if entry.tier != pb.Lesson.TIER_SOFT:
        return entry
    scores = {i.name: i.score for i in iterations if i.HasField("score")}
    children = [i for i in iterations if i.number in entry.support and i.name in scores and i.parent in scores]
    descendants = {i.name for i in children}
    for iteration in iterations:  # parents come before children
        if iteration.parent in descendants and iteration.name in scores and iteration.parent in scores:
            descendants.add(iteration.name)
            children.append(iteration)
    changes = [scores[i.name] - scores[i.parent] for i in children]
    worse, better = sum(c < -_MARGIN for c in changes), sum(c > _MARGIN for c in changes)
    if worse >= _MIN_FAILURES and worse >= 2 * better:
        return replace(entry, tier=pb.Lesson.TIER_RETIRED)
    return entry


def similarity(first: str, second: str) -> float:
    """Jaccard similarity of the words of two texts, without stop words; in [0, 1]."""
    a, b = _words(first), _words(second)
    return len(a & b) / len(a | b) if a | b else 1.0


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _STOP
