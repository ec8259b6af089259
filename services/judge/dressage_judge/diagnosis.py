"""The diagnosis of a code judge's result, as text: the weakest criteria, and the evidence for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dressage.contracts import JudgeResult

_SHOWN_CRITERIA = 3
_SHOWN_EVIDENCE = 6
_UNITS = {"m_s": "m/s", "rad_s": "rad/s", "m": "m", "s": "s", "rad": "rad", "deg": "degrees", "hz": "Hz"}
_UNIT = re.compile(rf"(?P<bound>\d)?_(?P<unit>{'|'.join(_UNITS)})$")
_NOT_TAG = re.compile(r"[^a-z0-9]+")


def diagnose(result: JudgeResult, *, threshold: float) -> str:
    """Return a few sentences about a result, the weakest criterion first.

    :param threshold: lowest score that passes.
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
    """Return tags of the criteria below the threshold, weakest first; none for a result that passes."""
    if result.score >= threshold:
        return []
    weakest = sorted(result.criteria.items(), key=lambda item: (item[1], item[0]))
    tags = [tag(name) for name, score in weakest if score < threshold]
    return [name for name in dict.fromkeys(tags) if name]


def tag(name: str) -> str:
    """Return a criterion's name as a tag, which may be empty."""
    return _NOT_TAG.sub("_", name.lower()).strip("_")[:40]


def _evidence(evidence: Mapping[str, float], about: list[str]) -> str:
    """The evidence, with values that share a word with a weak criterion first."""
    related = {word for name in about for word in _words(name).split()}

    def rank(item: tuple[int, tuple[str, float]]) -> tuple[int, int]:
        place, (name, _) = item
        return (-len(related & set(_words(name).split())), place)

    ordered = [entry for _, entry in sorted(enumerate(evidence.items()), key=rank)]
    text = ", ".join(_measurement(name, value) for name, value in ordered[:_SHOWN_EVIDENCE])
    return text + (", …" if len(ordered) > _SHOWN_EVIDENCE else "")


def _measurement(name: str, value: float) -> str:
    """Return a value with its name; the unit at the name's end goes behind the value: `mean velocity 1.36 m/s`.

    A unit behind a number is that of a bound in the name: `share of time below 0.42 m: 1`.
    """
    unit = _UNIT.search(name)
    if unit is None or unit.start() == 0:
        return f"{_words(name)} {value:.4g}"
    words = _words(name[: unit.start("unit")])
    if unit["bound"] is not None:
        return f"{words} {_UNITS[unit['unit']]}: {value:.4g}"
    return f"{words} {value:.4g} {_UNITS[unit['unit']]}"


def _words(name: str) -> str:
    return name.replace("_", " ").strip()
