"""What a reward and a judge are made of, before they are text: weighted terms and graded criteria."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """One term of a reward: ``weight`` times ``expression``.

    :param expression: Python over ``state``, ``action``, ``next_state`` and ``np``, of shape (N,).
    :param meaning: what it is, with its unit, for people and for models.
    :param latex: the expression as a formula, without its weight.
    """

    name: str
    weight: float
    expression: str
    meaning: str
    latex: str


@dataclass(frozen=True)
class Grade:
    """One criterion of a judge: ``low`` of a measure scores 0, ``high`` scores 1, linear between (``low`` may be larger).

    The judge's score is the product of ``(floor + (1 - floor) * grade) ** exponent`` over its criteria: one that fails
    outright fails the whole, and the floor says how hard.

    :param measure: Python over ``trajectory``, ``np`` and what the judge's prelude defines; a number.
    :param evidence: name under which the measure is reported, with its unit.
    :param title: a few words for people.
    :param description: what is measured, with thresholds.
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

    :param prelude: names of the measurements that the grades need, see ``templates/judge.py.j2``.
    :param null_controls: the controls that contradict the intent.
    """

    grades: tuple[Grade, ...]
    null_controls: tuple[str, ...]
    null_reasoning: str


def graded(
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
    """A criterion that counts in full; see `Grade`."""
    return Grade(name, measure, low, high, exponent, floor, evidence, title, description, category)
