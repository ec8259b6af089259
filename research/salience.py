"""Salience bias: whether critics that made a candidate worse speak of its worst rollout more often than others do.

The R2PO paper counts how many regressions have an explanation with the word "worst" (76.6 % on CartPole). Without the share
among revisions that were no regression, that figure does not show a bias. Here both shares and their difference are computed,
from the sessions of an experiment on a data folder:

    python -m research.salience experiments/results/r2po --data-dir data
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dressage.api.v1 import session_pb2 as pb
from dressage.client import AsyncClient
from dressage.experiments.records import Record, ResultFolder
from dressage.experiments.report import table
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.statistics import ShareDifference, share_difference

_WORST = re.compile(r"\b(?:worst|poorest|lowest[- ](?:return|reward|scoring))\b", re.IGNORECASE)


@dataclass(frozen=True)
class Revision:
    """A candidate and its revision by a critic."""

    first: float
    """Mean return of the candidate."""
    revised: float
    """Mean return of its revision."""
    explanation: str
    """Text of the critic."""

    @property
    def regression(self) -> bool:
        """Whether the revision is worse."""
        return self.revised < self.first


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


def revisions_of(iterations: Iterable[pb.Iteration]) -> list[Revision]:
    """Return the candidates that a critic revised, with their revisions; duplicates and skipped revisions are left out."""
    revisions = []
    for iteration in iterations:
        first: pb.ParameterCandidate | None = None
        for candidate in iteration.parameters.candidates:
            if candidate.origin == "search":
                first = candidate
            elif candidate.origin == "critic" and first is not None and candidate.rule != "skipped":
                revisions.append(Revision(first.mean_return, candidate.mean_return, candidate.explanation))
    return revisions


def markdown(counted: Mapping[str, Salience]) -> str:
    """Return the table of methods."""
    head = ("method", "regressions that mention the worst rollout", "others that mention it", "difference")
    rows = []
    for method, counts in counted.items():
        compared = counts.compared
        first = f"{counts.regressions_mentioning}/{counts.regressions}"
        second = f"{counts.others_mentioning}/{counts.others}"
        if compared is None:
            rows.append((method, first, second, "–"))
            continue
        gap = compared.difference
        text = f"{gap.value:+.1%} [{gap.low:+.1%}, {gap.high:+.1%}]"
        rows.append((method, f"{compared.first.value:.1%} ({first})", f"{compared.second.value:.1%} ({second})", text))
    about = (
        "Share of revisions whose explanation mentions the worst rollout, among revisions that made the candidate worse and "
        "among the others. Only a difference indicates a bias. Newcombe's interval."
    )
    return "\n".join(["## Salience bias", "", about, "", *table(head, rows), ""])


async def read(client: AsyncClient, records: Sequence[Record]) -> dict[str, list[Revision]]:
    """Return the revisions of each method's sessions."""
    revisions: dict[str, list[Revision]] = {}
    for record in records:
        iterations = [iteration async for iteration in client.list_iterations(f"sessions/{record.cell}")]
        revisions.setdefault(record.method, []).extend(revisions_of(iterations))
    return revisions


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()

    async def work(connection: Connection) -> dict[str, list[Revision]]:
        return await read(connection.client, ResultFolder(options.folder).records())

    revisions = execute(ServerOptions(data_dir=options.data_dir), work)
    print(markdown({method: salience(entries) for method, entries in revisions.items()}))


if __name__ == "__main__":
    main()
