"""Salience bias: whether critics that made a candidate worse speak of its worst rollout more often than others do.

The R2PO paper counts how many regressions have an explanation with the word "worst" (76.6 % on CartPole). Without the share
among revisions that were no regression, that figure does not show a bias. Here both shares and their difference are computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dressage.experiments.records import Revision
from dressage.experiments.statistics import ShareDifference, share_difference

_WORST = re.compile(r"\b(?:worst|poorest|lowest[- ](?:return|reward|scoring))\b", re.IGNORECASE)


@dataclass(frozen=True)
class Salience:
    """Revisions of a method, and how many of their explanations mention the worst rollout."""

    regressions: int
    regressions_mentioning: int
    others: int
    others_mentioning: int

    @property
    def compared(self) -> ShareDifference | None:
        """The two shares and their difference; None without regressions, or without other revisions."""
        return share_difference((self.regressions_mentioning, self.regressions), (self.others_mentioning, self.others))


def mentions_worst(explanation: str) -> bool:
    """Return whether a text mentions the worst rollout: `worst`, `poorest`, `lowest return` and the like."""
    return _WORST.search(explanation) is not None


def salience(revisions: Iterable[Revision]) -> Salience:
    """Count the revisions; those without an explanation are left out."""
    counts = {True: [0, 0], False: [0, 0]}
    for revision in revisions:
        if revision.explanation:
            counts[revision.regression][0] += 1
            counts[revision.regression][1] += mentions_worst(revision.explanation)
    return Salience(*counts[True], *counts[False])
