"""The learning curves of a session, loaded from its artifacts and iterations.

Those of a training are returns and scores over environment steps, combined over the seeds of a config. They are from
``metrics.jsonl`` of the members and from evaluations, which also exist if training was too short for an episode to end. A row
of ``metrics.jsonl`` repeats the mean of the last episodes until another episode ends. Only rows in which an episode has ended
are points, so that a curve has no steps where episodes end together.

A search has no members and no metrics files: its iterations hold the candidates. Scores are mean returns on search seeds, so
that the best of them is higher than the score on report seeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dressage.api.v1 import session_pb2 as pb
from dressage.errors import DressageError
from dressage.local.connection import Connection
from dressage.sdk.scores import SearchPoint, Series

_MEMBER = re.compile(r"^(?P<members>.+/assignments/[^/]+/members)/[^/]+$")
_METRICS = re.compile(r"/members/(?P<config>[^/]+)-s\d+/metrics\.jsonl$")
_MAX_BYTES = 64 * 2**20
_POINTS = 200

Array = NDArray[np.float64]
Rows = tuple[Array, Array]
"""Steps and values of one member."""


@dataclass(frozen=True)
class Returns:
    """The curves of one config; each may be missing."""

    training: Series | None = None
    """Returns under the proposed reward; so is `evaluation`."""
    evaluation: Series | None = None
    stock_training: Series | None = None
    """Returns under the environment's reward; so is `stock_evaluation`."""
    stock_evaluation: Series | None = None
    score: Series | None = None
    """Scores of the judge."""


async def load_returns(session: pb.Session, connection: Connection) -> dict[str, Returns] | None:
    """Load the curves of the training that the best policy is from, by config; None where there is no such training."""
    # The bundle of an earlier checkpoint may be in another assignment than its training.
    member = session.policy_origin.member or session.best_policy.removesuffix("/policy")
    match = _MEMBER.match(member)
    return None if match is None else await _load(match["members"], connection)


async def _load(prefix: str, connection: Connection) -> dict[str, Returns]:
    """Return the curves by config, in the order of their names."""
    texts: dict[str, list[str]] = {}
    async for artifact in connection.client.list_artifacts(f"{prefix}/"):
        match = _METRICS.search(artifact.key)
        if match is not None and artifact.size <= _MAX_BYTES:
            texts.setdefault(match["config"], []).append(await _text(artifact.key, connection))
    evaluated: dict[str, list[pb.Member]] = {}
    for member in await _members(prefix, connection):
        evaluated.setdefault(member.config, []).append(member)
    curves = {
        config: _returns(texts.get(config, []), evaluated.get(config, [])) for config in sorted({*texts, *evaluated})
    }
    return {config: returns for config, returns in curves.items() if returns != Returns()}


def _returns(texts: Sequence[str], members: Sequence[pb.Member]) -> Returns:
    """Return the curves of one config.

    :param texts: metrics of its members.
    """
    return Returns(
        training=combine([read_rows(text) for text in texts]),
        evaluation=combine_evaluations(members),
        stock_training=combine([read_rows(text, "environment_return") for text in texts]),
        stock_evaluation=combine_evaluations(members, stock_returns),
        score=combine_evaluations(members, scores),
    )


async def _members(prefix: str, connection: Connection) -> Sequence[pb.Member]:
    try:
        assignment = await connection.client.get_assignment(prefix.removesuffix("/members"))
    except DressageError:
        return []  # the training curves can be drawn without the evaluations
    return assignment.members


async def _text(key: str, connection: Connection) -> str:
    local = connection.local_path(key)
    if local is not None:
        return local.read_text("utf-8", errors="replace")
    try:
        chunks = [chunk async for chunk in connection.client.read_artifact(key)]
    except DressageError:
        return ""  # the curves of the other members can be drawn
    return b"".join(chunks).decode("utf-8", errors="replace")


def read_rows(text: str, name: str = "episode_return") -> Rows:
    """Return steps and values of one member where an episode has ended; incomplete lines are skipped.

    :param name: of the metric.
    """
    points, ended = [], None
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        step, value, count = row.get("step"), row.get(name), row.get("episodes")
        if count is not None and count == ended:
            continue
        ended = count
        if isinstance(step, int | float) and isinstance(value, int | float):
            points.append((float(step), float(value)))
    table = np.array(points, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def combine(members: Sequence[Rows]) -> Series | None:
    """Return mean and deviation over seeds, at steps where all of them have points; None if there are none."""
    drawn = [(steps, values) for steps, values in members if len(steps)]
    if not drawn:
        return None
    first, last = max(steps[0] for steps, _ in drawn), min(steps[-1] for steps, _ in drawn)
    if first > last:
        return None
    grid = np.linspace(first, last, _POINTS if last > first else 1)
    return _over_seeds(grid, np.stack([np.interp(grid, steps, returns) for steps, returns in drawn]))


def proposed_returns(evaluation: pb.Evaluation) -> Sequence[float]:
    """Return the returns of an evaluation under the proposed reward."""
    return evaluation.proposed_returns


def stock_returns(evaluation: pb.Evaluation) -> Sequence[float]:
    """Return the returns of an evaluation under the environment's reward."""
    return evaluation.returns


def scores(evaluation: pb.Evaluation) -> Sequence[float]:
    """Return the scores of the judged rollouts of an evaluation."""
    return [rollout.judgment.score for rollout in evaluation.rollouts if rollout.HasField("judgment")]


def combine_evaluations(
    members: Sequence[pb.Member], values: Callable[[pb.Evaluation], Sequence[float]] = proposed_returns
) -> Series | None:
    """Return mean and deviation over seeds of the mean value of evaluations, at the steps that all evaluated members have.

    :param values: of an evaluation; one without values is left out.
    :return: None if there are none.
    """
    returns = [{e.env_step: float(np.mean(values(e))) for e in m.evaluations if len(values(e))} for m in members]
    evaluated = [by_step for by_step in returns if by_step]
    steps = sorted(set.intersection(*(set(by_step) for by_step in evaluated))) if evaluated else []
    if not steps:
        return None
    table = np.array([[by_step[step] for step in steps] for by_step in evaluated])
    return _over_seeds(np.array(steps, dtype=np.float64), table)


def _over_seeds(steps: Array, values: Array) -> Series:
    """Return the curve of (seeds, steps) values."""
    deviation = values.std(axis=0, ddof=int(len(values) > 1))
    return Series(steps.tolist(), values.mean(axis=0).tolist(), deviation.tolist(), len(values))


# Searches.


async def load_points(session: pb.Session, connection: Connection) -> list[SearchPoint]:
    """Load the learning curve of a search."""
    return points([iteration async for iteration in connection.client.list_iterations(session.name)])


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
        evaluations = sum(len(candidate.returns) for candidate in proposal.candidates if not candidate.duplicate_of)
        return max(proposal.episodes, proposal.search.episodes, evaluations)
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
