"""Candidates of a round: their states, their order, and how people read and edit them. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from dressage.api.v1 import session_pb2 as v1
from dressage.statistics import mean

from dressage_orchestrator.lifecycle.context import Json
from dressage_orchestrator.models import USER

FAILED_SCORE = -math.inf
"""Score of a failed candidate: lower than any return."""

_MAX_MESSAGE = 4_000
_HEADER = "# === candidate {number} of {count} ==="
_HEADER_PATTERN = re.compile(r"^# === candidate (\d+) of \d+ ===[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class CandidateFailure:
    """Why a candidate has no score.

    :param reason: in UPPER_SNAKE_CASE.
    """

    reason: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Candidate:
    """A policy on its way through a round. JSON by `as_json` and `from_json`.

    :param author: name of the model, or ``user``.
    :param repairs: number of repairs.
    :param explanations: of the repairs, the oldest first.
    :param failure: why it has no score; None if it has one, or is not evaluated yet.
    :param unrepairable: whether no repair follows its failure.
    :param returns: undiscounted returns, one for each seed; empty before the evaluation.
    :param feedback: summaries of its trajectories.
    :param duplicate: whether the returns are those of the same source in an earlier evaluation.
    :param act_seconds: mean seconds of one action.
    """

    source: str
    author: str
    repairs: int = 0
    explanations: tuple[str, ...] = ()
    failure: CandidateFailure | None = None
    unrepairable: bool = False
    returns: tuple[float, ...] = ()
    feedback: tuple[str, ...] = ()
    duplicate: bool = False
    act_seconds: float = 0.0

    @property
    def score(self) -> float:
        """Mean return; lower than any return if it failed or was not evaluated."""
        return mean(self.returns) if self.returns and self.failure is None else FAILED_SCORE

    @property
    def playable(self) -> bool:
        """Whether it waits for its evaluation."""
        return self.failure is None and not self.returns

    def with_failure(self, reason: str, message: str, remedy: str = "", *, unrepairable: bool = False) -> Candidate:
        """Return this candidate with a failure."""
        failure = CandidateFailure(reason or "POLICY_FAILED", message[:_MAX_MESSAGE], remedy)
        return replace(self, failure=failure, unrepairable=unrepairable, returns=(), feedback=())

    def repairable(self, limit: int) -> bool:
        """Whether the fixer may repair it."""
        failed = self.failure is not None and not self.unrepairable
        return failed and self.author != USER and self.repairs < limit and bool(self.source.strip())

    def message(self) -> v1.CodeCandidate:
        """Return it as the API's message."""
        entry = v1.CodeCandidate(source=self.source, returns=self.returns, repairs=self.repairs)
        entry.feedback.extend(self.feedback)
        entry.duplicate, entry.act_seconds = self.duplicate, self.act_seconds
        if self.failure is not None:
            entry.failure.CopyFrom(v1.Failure(**asdict(self.failure)))
        elif self.returns:
            entry.mean_return = self.score
        return entry


def as_json(candidates: Sequence[Candidate]) -> Json:
    """Return candidates as the result of a step."""
    return [asdict(entry) for entry in candidates]


def from_json(data: Json) -> list[Candidate]:
    """Return candidates from the result of a step."""
    tuples = ("explanations", "returns", "feedback")
    return [
        Candidate(
            **{
                **entry,
                **{name: tuple(entry[name]) for name in tuples},
                "failure": CandidateFailure(**entry["failure"]) if entry["failure"] else None,
            }
        )
        for entry in data
    ]


def from_message(entry: v1.CodeCandidate, *, author: str) -> Candidate:
    """Return a recorded candidate; no repair follows a recorded failure."""
    candidate = Candidate(entry.source, author, entry.repairs, returns=tuple(entry.returns))
    candidate = replace(
        candidate, feedback=tuple(entry.feedback), duplicate=entry.duplicate, act_seconds=entry.act_seconds
    )
    if entry.HasField("failure"):
        failure = entry.failure
        return candidate.with_failure(failure.reason, failure.message, failure.remedy, unrepairable=True)
    return candidate


def best_of(candidates: Sequence[Candidate]) -> int | None:
    """Return the index of the candidate with the highest score, the first one of equal scores; None if all failed."""
    best = max(range(len(candidates)), key=lambda index: (candidates[index].score, -index), default=None)
    return None if best is None or candidates[best].score == FAILED_SCORE else best


def with_duplicates(candidates: Sequence[Candidate], results: dict[str, Candidate]) -> list[Candidate]:
    """Give candidates that wait for their evaluation the results of the same source, if there are any.

    :param results: evaluated candidates by source; successful ones, or failed ones of this round.
    """
    return [
        _copy_results(entry, results[entry.source]) if entry.playable and entry.source in results else entry
        for entry in candidates
    ]


def _copy_results(candidate: Candidate, same: Candidate) -> Candidate:
    return replace(
        candidate,
        returns=same.returns,
        feedback=same.feedback,
        act_seconds=same.act_seconds,
        failure=same.failure,
        # The first candidate of that source is repaired; a copy would be repaired in the same way.
        unrepairable=same.failure is not None,
        duplicate=True,
    )


def unplayed_sources(candidates: Sequence[Candidate]) -> list[str]:
    """Return the distinct sources of candidates that wait for their evaluation, in order."""
    return list(dict.fromkeys(entry.source for entry in candidates if entry.playable))


def digest(*parts: str) -> str:
    """Return a short digest of texts, for names of assignments: the same content is never played twice."""
    # Separated by what no source contains, so that the same text in other parts has another digest.
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


# What people read and edit.


def as_text(sources: Sequence[str]) -> str:
    """Return the candidates of a round as one text: the source of a single one, otherwise sections with headers."""
    if len(sources) <= 1:
        return sources[0] if sources else ""
    count = len(sources)
    return "\n".join(
        f"{_HEADER.format(number=number, count=count)}\n{source.rstrip()}\n" for number, source in enumerate(sources, 1)
    )


def sections(text: str) -> dict[int, str]:
    """Return the sources of a text by the number of the candidate; a text without headers is candidate 1."""
    headers = list(_HEADER_PATTERN.finditer(text))
    if not headers:
        return {1: text}
    ends = [*(header.start() for header in headers[1:]), len(text)]
    parts = zip(headers, ends, strict=True)
    return {int(header[1]): text[header.end() : end].strip("\n") + "\n" for header, end in parts}


def with_edits(candidates: Sequence[Candidate], text: str) -> list[Candidate]:
    """Replace candidates by those of a person's text. Sections with other numbers are appended."""
    edited = list(candidates)
    for number, source in sections(text).items():
        if not 1 <= number <= len(edited):
            edited.append(Candidate(source, USER))
        elif edited[number - 1].source.rstrip() != source.rstrip():
            edited[number - 1] = Candidate(source, USER)
    return edited
