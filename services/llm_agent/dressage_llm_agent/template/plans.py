"""The parts of a reward and of a judge before they are rendered: weighted terms and graded criteria."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """One term of a reward: ``weight`` times ``expression``.

    :param expression: Python over ``state``, ``action``, ``next_state`` and ``np``, of shape (N,).
    :param meaning: a description with its unit, for people and for models.
    :param latex: the expression as a formula, without its weight.
    """

    name: str
    weight: float
    expression: str
    meaning: str
    latex: str


@dataclass(frozen=True)
class Grade:
    """One criterion of a judge: a measure of ``low`` scores 0, ``high`` scores 1, linear between (``low`` may be larger).

    The judge's score is the product of ``(floor + (1 - floor) * grade) ** exponent`` over its criteria. The floor is the
    factor of a criterion that scores 0.

    :param measure: Python over ``trajectory``, ``np`` and the names of the judge's prelude; a number.
    :param evidence: name of the measure in the evidence, with its unit.
    :param title: a few words for people.
    :param description: the measure, with thresholds.
    """

    name: str
    measure: str
    low: float
    high: float
    exponent: float
    floor: float
    evidence: str
    title: str
    description: str
    category: str


@dataclass(frozen=True)
class RewardPlan:
    """A reward: the sum of its terms."""

    terms: tuple[Term, ...]


@dataclass(frozen=True)
class JudgePlan:
    """A judge: the weighted product of its grades.

    :param null_controls: the controls that contradict the intent.
    """

    grades: tuple[Grade, ...]
    null_controls: tuple[str, ...]
    null_reasoning: str


def grade(
    name: str,
    measure: str,
    low: float,
    high: float,
    evidence: str,
    title: str,
    description: str,
    category: str,
    *,
    exponent: float = 1.0,
    floor: float = 0.0,
) -> Grade:
    """Return a criterion; see `Grade`."""
    return Grade(name, measure, low, high, exponent, floor, evidence, title, description, category)
