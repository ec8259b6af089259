"""Requests and output of `dressage sessions steer|label|rollouts|diff`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dressage.api.arguments import STEER
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.cli import output
from dressage.client.names import session_name
from dressage.local.connection import Connection
from dressage.sdk.specs import set_arguments
from dressage.sdk.texts import quantity, return_text, score_text

_KINDS = {pb.JUDGE_KIND_CODE: "code", pb.JUDGE_KIND_VIDEO: "video", pb.JUDGE_KIND_HUMAN: "people"}


def steer(session: str, note: str, options: Mapping[str, Any]) -> Callable[[Any], Awaitable[pb.Session]]:
    """Send directions for the next iteration and return the session.

    :param options: values by the names in `dressage.api.arguments.STEER`.
    """
    request = sessions_pb.SteerSessionRequest()
    set_arguments(request, STEER, options)

    async def send(client: Any) -> pb.Session:
        await client.steer_session(
            session,
            note,
            proposal_source=request.proposal_source,
            criteria=request.criteria,
            rebase_to=request.rebase_to,
            from_parent=request.from_parent,
        )
        steered: pb.Session = await client.get_session(session)
        return steered

    return send


def label(
    rollout: str, score: float, comment: str
) -> Callable[[Connection], Awaitable[sessions_pb.LabelRolloutResponse]]:
    """Record a score."""

    async def work(connection: Connection) -> sessions_pb.LabelRolloutResponse:
        judgment = await connection.client.label_rollout(rollout, score, comment=comment)
        session = await connection.client.get_session("/".join(rollout.split("/")[:2]))
        return sessions_pb.LabelRolloutResponse(judgment=judgment, agreement=session.label_agreement)

    return work


def print_label(answer: sessions_pb.LabelRolloutResponse, *, as_json: bool) -> None:
    """Print the verdicts of judges and people, and their agreement."""
    if as_json:
        output.print_json(output.message_dict(answer))
        return
    rows = [
        (_KINDS.get(verdict.kind, "?"), f"{verdict.score:.2f}", verdict.votes, verdict.comment)
        for verdict in answer.judgment.verdicts
    ]
    output.print_table(("judge", "score", "votes", "remarks"), rows)
    print(agreement(answer.agreement))


def agreement(value: pb.Agreement) -> str:
    """Return the agreement of labels and judges in one line."""
    rank = f"{value.spearman:.2f}" if value.HasField("spearman") else "unknown (too few labels)"
    kappa = f"{value.kappa:.2f}" if value.HasField("kappa") else "unknown (too few labels)"
    return f"{quantity(value.rollouts, 'labelled rollout')}: rank correlation {rank}, kappa of pass and fail {kappa}"


def rollouts(session: str) -> Callable[[Connection], Awaitable[list[dict[str, Any]]]]:
    """Return a function that lists the recorded rollouts of a session, in order."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        entries = []
        async for assignment in connection.client.list_assignments(session_name(session)):
            for member in assignment.members:
                for evaluation in member.evaluations:
                    entries += [_rollout(entry, evaluation.env_step) for entry in evaluation.rollouts]
            if assignment.kind == "evaluate":  # the list leaves out candidates
                full = await connection.client.get_assignment(assignment.name)
                entries += [_rollout(entry, 0) for candidate in full.candidates for entry in candidate.rollouts]
        return entries

    return work


def _rollout(entry: pb.Rollout, step: int) -> dict[str, Any]:
    scores = {_KINDS.get(verdict.kind, "?"): verdict.score for verdict in entry.judgment.verdicts}
    return {
        "rollout": entry.artifact,
        "env_step": step,
        "return": getattr(entry, "return"),
        "proposed_return": entry.proposed_return,
        "score": entry.judgment.score if entry.HasField("judgment") else None,
        **{kind: scores.get(kind) for kind in _KINDS.values()},
    }


def print_rollouts(entries: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print a table of rollouts."""
    if as_json:
        output.print_json({"rollouts": entries})
        return

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    kinds = ("score", *_KINDS.values())
    rows = [
        (entry["rollout"], return_text(entry["return"], decimals=1), *(number(entry[kind]) for kind in kinds))
        for entry in entries
    ]
    output.print_table(("rollout", "return", *kinds), rows, empty="no rollouts yet", whole=("rollout",))


def pair(session: str, first: int, second: int) -> Callable[[Connection], Awaitable[tuple[pb.Iteration, pb.Iteration]]]:
    """Return a function that gets two iterations."""

    async def work(connection: Connection) -> tuple[pb.Iteration, pb.Iteration]:
        names = [f"{session_name(session)}/iterations/{number}" for number in (first, second)]
        iterations = [await connection.client.get_iteration(name) for name in names]
        return iterations[0], iterations[1]

    return work


def print_diff(first: pb.Iteration, second: pb.Iteration, *, as_json: bool) -> None:
    """Print scores, hyperparameters and the diff of two iterations."""
    lines = difflib.unified_diff(
        proposal(first).splitlines(),
        proposal(second).splitlines(),
        f"iteration {first.number}",
        f"iteration {second.number}",
        lineterm="",
    )
    text = "\n".join(lines)
    sides = [_side(first), _side(second)]
    if as_json:
        output.print_json({"first": sides[0], "second": sides[1], "diff": text})
        return
    names = list(dict.fromkeys([*sides[0]["criteria"], *sides[1]["criteria"]]))
    rows = [("score", *(_score_or_dash(side["score"]) for side in sides))]
    rows += [(name, *(_score_or_dash(side["criteria"].get(name)) for side in sides)) for name in names]
    for name in sorted(set(sides[0]["hyperparameters"]) | set(sides[1]["hyperparameters"])):
        rows.append((name, *(str(side["hyperparameters"].get(name, "preset")) for side in sides)))
    output.print_table(("", str(first.number), str(second.number)), rows)
    print(text or "the proposals are equal")


def _score(iteration: pb.Iteration) -> float | None:
    if iteration.HasField("score"):
        return iteration.score
    return iteration.judgment.score if iteration.HasField("judgment") else None


def proposal(iteration: pb.Iteration) -> str:
    """Return the proposal of an iteration as text: its source, else its message as JSON."""
    chosen = iteration.WhichOneof("proposal")
    if chosen is None:
        return ""
    if chosen == "parameters":  # one a line, for comparisons
        values = iteration.parameters.values or iteration.parameters.search.best_parameters
        return "\n".join(f"parameter {index}: {value:.6g}" for index, value in enumerate(values))
    source: str = getattr(getattr(iteration, chosen), "source", "")
    return source or json.dumps(output.message_dict(iteration)[chosen], indent=2)


def _side(iteration: pb.Iteration) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    reward = iteration.reward
    best = [config for config in reward.configs if config.id == reward.best_config] or list(reward.configs)[:1]
    hyperparameters = MessageToDict(best[0].hyperparameters, preserving_proto_field_name=True) if best else {}
    return {
        "iteration": iteration.number,
        "score": _score(iteration),
        "criteria": {entry.name: entry.score for entry in iteration.judgment.criteria},
        "config": reward.best_config,
        "hyperparameters": hyperparameters,
    }


def _score_or_dash(value: float | None) -> str:
    return "–" if value is None else score_text(value)
