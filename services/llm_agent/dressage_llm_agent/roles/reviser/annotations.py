"""Sections of a revision other than its code: the lesson with its tier, updates of earlier lessons, addressed notes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb

LESSON_TIERS = ("HARD", "STRONG", "SOFT")
RETIRED = "RETIRED"
_TIER = re.compile(r"^\W*(HARD|STRONG|SOFT)\b\W*", re.IGNORECASE)
_UPDATE = re.compile(r"^\W*(\d+)\W+([A-Za-z]+)\b\W*(.*)$")
_NUMBERED = re.compile(r"^\W*(\d+)\s*[.):-]\s*(.+)$")
_SHOWN_NOTE = 300


def parse_lesson(text: str) -> tuple[str, str]:
    """Return a lesson's tier and its text; the tier is SOFT by default, since one iteration proves little."""
    match = _TIER.match(text)
    if match is None:
        return "SOFT", text.strip()
    return match[1].upper(), text[match.end() :].strip() or text.strip()


def parse_lesson_updates(
    text: str, lessons: Sequence[agent_pb.KnownLesson], problems: list[str]
) -> list[agent_pb.LessonUpdate]:
    """Return the updates of a section with lines ``number: TIER: reason``; lines without a digit are none."""
    updates = []
    numbers = {entry.number for entry in lessons}
    for line in text.splitlines():
        if not any(character.isdigit() for character in line):
            continue
        match = _UPDATE.match(line)
        tier = match[2].upper() if match else ""
        if match is None or tier not in (*LESSON_TIERS, RETIRED):
            tiers = ", ".join((*LESSON_TIERS, RETIRED))
            problems.append(
                f"'## Lesson updates' must hold lines 'number: TIER: reason' with a tier of {tiers}: {line[:80]}"
            )
        elif int(match[1]) not in numbers:
            problems.append(f"'## Lesson updates' names lesson {match[1]}, which there is not")
        elif not match[3].strip():
            problems.append(f"'## Lesson updates' must say why lesson {match[1]} becomes {tier}")
        else:
            updates.append(agent_pb.LessonUpdate(number=int(match[1]), tier=tier, reason=match[3].strip()))
    return updates


def parse_addressed_notes(text: str, notes: Sequence[str], problems: list[str]) -> list[str]:
    """Return for each note its text, quoted, and how the revision addresses it.

    :param text: the section, with a numbered line for each note.
    """
    answers = {int(match[1]): match[2].strip() for line in text.splitlines() if (match := _NUMBERED.match(line))}
    if len(notes) == 1 and not answers and text.strip():
        answers = {1: text.strip()}
    missing = [number for number in range(1, len(notes) + 1) if number not in answers]
    if missing:
        numbers = ", ".join(str(number) for number in missing)
        problems.append(
            f"'## Notes' must state in numbered lines how each note is addressed; number {numbers} is missing"
        )
        return []
    return [f"“{_short(note)}”: {answers[number]}" for number, note in enumerate(notes, start=1)]


def _short(note: str) -> str:
    line = " ".join(note.split())
    return line if len(line) <= _SHOWN_NOTE else line[: _SHOWN_NOTE - 1] + "…"


def parse_start(text: str, based_on: int, task: agent_pb.ReviserTask, problems: list[str]) -> tuple[bool, str]:
    """Return whether training continues from the parent's policies, and the reason.

    :param text: the section; empty: it is missing, and training starts anew.
    :param based_on: number of the iteration that the revision is based on; 0: the latest.
    """
    if not text or not task.may_continue_from:
        return False, ""
    word, _, reason = text.partition(":")
    choice = word.strip().strip("*\"`'").lower()
    if choice not in ("parent", "fresh"):
        problems.append("'## Start' must begin with 'parent' or 'fresh' and a colon")
    elif not reason.strip():
        problems.append("'## Start' must say why")
    elif choice == "parent":
        number = based_on or max((past.number for past in task.history), default=0)
        if number not in task.may_continue_from:
            choices = ", ".join(map(str, task.may_continue_from))
            problems.append(f"'## Start': iteration {number} has no policies to continue from, only {choices}")
    return choice == "parent", reason.strip()
