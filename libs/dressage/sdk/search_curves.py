"""The learning curve of a search: scores of candidates against episodes, from the iterations of a session.

A search has no members and no metrics files: its iterations hold the candidates. Scores are mean returns on search seeds, so
that the best of them is higher than the score on report seeds. matplotlib (extra ``plots``) is imported when a curve is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressage.api.v1 import session_pb2 as pb
from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.local.connection import Connection
from dressage.sdk.curve_file import CURVE_FILE, Picture, write_figure
from dressage.sdk.texts import short

_NOTHING = "no candidate was evaluated"
_DRAWN_TITLE = 70


@dataclass(frozen=True)
class SearchPoint:
    """The state of a search after an iteration, or after an improvement of a search by the trainer."""

    episodes: int
    """Episodes of the search until then; for programs, the programs that were evaluated."""
    tokens: int
    """Tokens of model calls until then, sent and received."""
    score: float
    """Mean return of the chosen candidate of the iteration, or of the improvement."""
    best: float
    """Highest score until then."""


def points(iterations: Iterable[pb.Iteration]) -> list[SearchPoint]:
    """Return the learning curve of a session; iterations without a score only count episodes and tokens.

    :param iterations: in order; those of methods without candidates give no points.
    """
    curve: list[SearchPoint] = []
    episodes = tokens = 0
    best = float("-inf")
    for iteration in iterations:
        tokens += iteration.cost.input_tokens + iteration.cost.output_tokens
        scores, played = _scores(iteration)
        for within, score in scores:
            best = max(best, score)
            curve.append(SearchPoint(episodes + within, tokens, score, best))
        episodes += played
    return curve


def winner_scores(iterations: Iterable[pb.Iteration]) -> list[float]:
    """Return the mean return of the chosen candidate of each iteration, without those in which the trainer searched."""
    scores = (None if iteration.parameters.search.evaluated else chosen_score(iteration) for iteration in iterations)
    return [score for score in scores if score is not None]


def chosen_score(iteration: pb.Iteration) -> float | None:
    """Return the mean return of an iteration's chosen candidate; None for an iteration without one."""
    candidates, chosen = candidates_of(iteration), chosen_of(iteration)
    if not 1 <= chosen <= len(candidates):
        return None
    candidate = candidates[chosen - 1]
    if isinstance(candidate, pb.CodeCandidate) and not candidate.HasField("mean_return"):
        return None
    return candidate.mean_return


def candidates_of(iteration: pb.Iteration) -> Sequence[pb.ParameterCandidate] | Sequence[pb.CodeCandidate]:
    """Return the candidates of an iteration; none for other methods."""
    kind = iteration.WhichOneof("proposal")
    if kind == "parameters":
        return iteration.parameters.candidates
    return iteration.code.candidates if kind == "code" else ()


def chosen_of(iteration: pb.Iteration) -> int:
    """Return the number of the chosen candidate, from 1; 0 if there is none."""
    kind = iteration.WhichOneof("proposal")
    if kind == "parameters":
        return iteration.parameters.chosen
    return iteration.code.chosen if kind == "code" else 0


def episodes_of(iteration: pb.Iteration) -> int:
    """Return the episodes of an iteration; 0 for methods that do not count them."""
    kind = iteration.WhichOneof("proposal")
    if kind == "parameters":
        proposal = iteration.parameters
        # The episodes of a proposal are without those of random candidates before it.
        recorded = sum(len(candidate.returns) for candidate in proposal.candidates if not candidate.duplicate_of)
        return max(proposal.episodes, proposal.search.episodes, recorded)
    return iteration.code.episodes if kind == "code" else 0


def _scores(iteration: pb.Iteration) -> tuple[list[tuple[int, float]], int]:
    """Return scores with the episodes that the iteration had played by then, and all its episodes."""
    played = episodes_of(iteration)
    if iteration.WhichOneof("proposal") == "program":
        return _program_scores(iteration.program)
    search = iteration.parameters.search
    if iteration.WhichOneof("proposal") == "parameters" and search.evaluated:
        each = search.episodes / search.evaluated
        scores = [(round(entry.evaluated * each), entry.score) for entry in search.improvements]
        # The last point shows how long the search continued without an improvement.
        return [*scores, (search.episodes, search.best_score)], played
    score = chosen_score(iteration)
    return ([] if score is None else [(played, score)]), played


def _program_scores(proposal: pb.ProgramProposal) -> tuple[list[tuple[int, float]], int]:
    """Return scores with the programs that the iteration had evaluated by then, and all of them."""
    search = proposal.search
    if not search.evaluated:
        scores = [candidate.mean_return for candidate in proposal.candidates]
        return list(enumerate(scores, start=1)), len(scores)
    scored = [(entry.evaluated, entry.score) for entry in search.improvements]
    return [*scored, (search.evaluated, search.best_score)], search.evaluated


async def load_points(session: pb.Session, connection: Connection) -> list[SearchPoint]:
    """Load the learning curve of a session."""
    return points([iteration async for iteration in connection.client.list_iterations(session.name)])


async def save(session: pb.Session, connection: Connection, *, path: Path | None = None) -> Picture:
    """Draw the learning curve.

    :param path: of the picture; by default next to the policy if the artifacts are on this machine, else in the current folder.
    """
    if path is None:
        policy = connection.local_path(session.best_policy)
        name = f"learning-curve-{short(session.name)}.png"
        path = policy.parent / CURVE_FILE if policy is not None else Path(name).absolute()
    return draw_to(await load_points(session, connection), path, session)


def draw_to(curve: Sequence[SearchPoint], path: Path, session: pb.Session) -> Picture:
    """Draw the picture into a file; why there is none is in the result."""
    if not curve:
        return Picture(missing=_NOTHING)
    report = session.report.mean if session.HasField("report") else None
    try:
        draw(curve, path, title=_title(session), report=report, programs=session.method == "program")
    except FailedPrecondition as error:
        return Picture(missing=error.message)
    except OSError as error:  # the summary is printed even if the picture cannot be written
        return Picture(missing=f"the file cannot be written: {error}")
    return Picture(path)


def draw(curve: Sequence[SearchPoint], path: Path, *, title: str, report: float | None, programs: bool = False) -> None:
    """Write the picture: a point for each iteration, a line for the best so far, and the score on report seeds.

    :param programs: whether the candidates are programs, of which there are up to millions: the axis is logarithmic.
    :raises FailedPrecondition: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = f"a learning curve needs matplotlib: {install_command('plots')}"
        raise FailedPrecondition(message, reason="MISSING_PACKAGE") from error
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes: Any = figure.add_subplot()
    episodes = [point.episodes for point in curve]
    axes.plot(episodes, [point.score for point in curve], ".", color="C0", alpha=0.5, label="chosen candidate")
    axes.step(episodes, [point.best for point in curve], where="post", color="C0", label="best so far")
    if report is not None:
        axes.axhline(report, color="C1", linestyle="--", label="score on report seeds")
    axes.set_xlabel("programs evaluated" if programs else "episodes of the search")
    if programs:
        axes.set_xscale("log")
    axes.set_ylabel("mean return on search seeds")
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    write_figure(figure, path)


def _title(session: pb.Session) -> str:
    line = " ".join(session.spec.intent.split()).replace("$", r"\$")
    cut = line if len(line) <= _DRAWN_TITLE else line[: _DRAWN_TITLE - 1] + "…"
    return f"{cut} · {session.spec.environment.removeprefix('environments/')}"
