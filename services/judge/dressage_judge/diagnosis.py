"""What a code judge's numbers say, in words: the weakest criteria, and the evidence they rest on."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dressage.contracts import JudgeResult

_SHOWN_CRITERIA = 3
_SHOWN_EVIDENCE = 6
_NOT_TAG = re.compile(r"[^a-z0-9]+")


def diagnose(result: JudgeResult, *, threshold: float) -> str:
    """One or two sentences on a verdict, the weakest criterion first.

    :param threshold: score from which the behaviour counts as achieved.
    """
    reached = result.score >= threshold
    verdict = "reaches" if reached else "stays below"
    sentences = [f"Score {result.score:.2f} {verdict} the threshold {threshold:.2f}."]
    weakest = sorted(result.criteria.items(), key=lambda item: (item[1], item[0]))
    lacking = [(name, score) for name, score in weakest if score < threshold] or weakest[:1]
    if lacking:
        names = ", ".join(f"{_words(name)} ({score:.2f})" for name, score in lacking[:_SHOWN_CRITERIA])
        rest = f" and {len(lacking) - _SHOWN_CRITERIA} more" if len(lacking) > _SHOWN_CRITERIA else ""
        sentences.append(f"{'Weakest' if reached else 'What is lacking'}: {names}{rest}.")
    if result.evidence:
        sentences.append(f"Measured: {_evidence(result.evidence, [name for name, _ in lacking])}.")
    return " ".join(sentences)


def failure_tags(result: JudgeResult, *, threshold: float) -> list[str]:
    """Short names of the criteria that stay below the threshold, weakest first; none for a passed verdict."""
    if result.score >= threshold:
        return []
    weakest = sorted(result.criteria.items(), key=lambda item: (item[1], item[0]))
    tags = [tag(name) for name, score in weakest if score < threshold]
    return [name for name in dict.fromkeys(tags) if name]


def tag(name: str) -> str:
    """A criterion's name as a tag; empty where nothing is left of it."""
    return _NOT_TAG.sub("_", name.lower()).strip("_")[:40]


def _evidence(evidence: Mapping[str, float], about: list[str]) -> str:
    """The numbers, those whose names share a word with a weak criterion first."""
    wanted = {word for name in about for word in _words(name).split()}

    def rank(item: tuple[int, tuple[str, float]]) -> tuple[int, int]:
        place, (name, _) = item
        return (-len(wanted & set(_words(name).split())), place)

    ordered = [entry for _, entry in sorted(enumerate(evidence.items()), key=rank)]
    shown = ", ".join(f"{_words(name)} {value:.4g}" for name, value in ordered[:_SHOWN_EVIDENCE])
    return shown + (", …" if len(ordered) > _SHOWN_EVIDENCE else "")


def _words(name: str) -> str:
    return name.replace("_", " ").strip()
