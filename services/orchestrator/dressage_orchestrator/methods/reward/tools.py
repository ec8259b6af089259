"""Tools over a session's history that the reviser may call, and the training's dynamics in words.

All answers come from one `History`, read in one transaction when the conversation begins. llm-agent journals each
answer before the model sees it, so that a repeat after a crash gets the same words although the rows may have changed
meanwhile.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument, NotFound
from dressage.statistics import mean
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator.clients import Tool
from dressage_orchestrator.lifecycle import lessons
from dressage_orchestrator.methods.reward.history import PARTS, History, merge_trends, trend_text

_MAX_ROLLOUTS = 60
_MAX_COURSE = 50


def history_tools(history: History) -> dict[str, Tool]:
    """Return the tools by name; each takes its arguments and returns text."""

    def by_number(answer: Any) -> Tool:
        return lambda arguments: _text(answer(history, _pick(history, arguments, "number")))

    def compare(arguments: Mapping[str, Any]) -> str:
        first, second = _pick(history, arguments, "first"), _pick(history, arguments, "second")
        return _text(_compare(first, second))

    return {
        "get_iteration": by_number(_describe),
        "get_reward_code": by_number(lambda _, entry: entry.reward.source),
        "get_dynamics": by_number(_dynamics),
        "get_judgments": by_number(_judgments),
        "get_rollouts": by_number(_rollouts),
        "compare_iterations": compare,
        "get_scores": lambda _: _text([_timeline(history, entry) for entry in history.iterations]),
        "get_lineage": lambda _: tree(history),
        "get_changes": lambda _: _text(changes(history)),
        "get_lessons": lambda _: _text([_lesson(entry) for entry in lessons.in_force(history.iterations)]),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)


def _pick(history: History, arguments: Mapping[str, Any], name: str) -> v1.Iteration:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InvalidArgument(field=name, value=value, expected="the number of an iteration")
    try:
        return history[int(value)]
    except KeyError:
        numbers = ", ".join(str(entry.number) for entry in history.iterations)
        message = f"{name}: there is no iteration {int(value)}; there are {numbers}"
        raise NotFound(message, reason="ITERATION_NOT_FOUND") from None


def _score(iteration: v1.Iteration) -> dict[str, Any]:
    judgment = iteration.judgment
    return {
        "score": round(judgment.score, 4),
        "interval": [round(judgment.interval_low, 4), round(judgment.interval_high, 4)],
        "criteria": {entry.name: round(entry.score, 4) for entry in judgment.criteria},
    }


def _timeline(history: History, iteration: v1.Iteration) -> dict[str, Any]:
    best = iteration.name == history.best
    return {"iteration": iteration.number, "parent": number_of(iteration.parent), **_score(iteration), "best": best}


def number_of(name: str) -> int:
    """Return the number in an iteration's name; 0 for none."""
    return int(name.rpartition("/")[2]) if name else 0


def _hyperparameters(config: v1.Config) -> dict[str, Any]:
    plain: dict[str, Any] = MessageToDict(config.hyperparameters, preserving_proto_field_name=True)
    return plain


def _describe(history: History, iteration: v1.Iteration) -> dict[str, Any]:
    return {
        "iteration": iteration.number,
        "parent": number_of(iteration.parent),
        "source": iteration.reward.source,
        "planned_change": iteration.planned_change,
        "lesson": iteration.lesson,
        "judgment": {**_score(iteration), "diagnosis": iteration.judgment.diagnosis},
        "failure_tags": list(iteration.judgment.failure_tags),
        "dynamics": dynamics(history, iteration.number),
        "best_config": iteration.reward.best_config,
        "hyperparameters": {config.id: _hyperparameters(config) for config in iteration.reward.configs},
        **({"steps_per_member": iteration.reward.steps_per_member} if iteration.reward.steps_per_member else {}),
        "config_scores": {entry.config: round(entry.score, 4) for entry in iteration.reward.config_scores},
        "warnings": list(iteration.warnings),
    }


def _dynamics(history: History, iteration: v1.Iteration) -> dict[str, Any]:
    configs: dict[str, Any] = {
        config.id: {"hyperparameters": _hyperparameters(config), "members": []} for config in iteration.reward.configs
    }
    for member in history.training_members(iteration.number):
        course = [
            {
                "env_step": entry.env_step,
                "proposed_return": round(mean(entry.proposed_returns or entry.returns), 4),
                "return": round(mean(entry.returns), 4),
            }
            for entry in member.evaluations[-_MAX_COURSE:]
        ]
        row = {"seed": member.seed, "course": course, "metrics": _metrics(history, member)}
        configs.setdefault(member.config, {"hyperparameters": {}, "members": []})["members"].append(row)
    return {"configs": configs, "warnings": list(iteration.warnings)}


def _metrics(history: History, member: v1.Member) -> dict[str, Any]:
    """Return the course of a member's metrics over the parts of its training; their last values where it is not stored."""
    trend = history.trend(member)
    if trend:
        return {name: [float(f"{value:.4g}") for value in values] for name, values in trend.items()}
    return {name: round(value, 6) for name, value in sorted(member.metrics.items())}


def _verdicts(judgment: v1.Judgment) -> list[dict[str, Any]]:
    return [
        {
            "kind": v1.JudgeKind.Name(entry.kind).removeprefix("JUDGE_KIND_").lower(),
            "score": round(entry.score, 4),
            "votes": entry.votes,
            "spread": round(entry.spread, 4),
            "comment": entry.comment,
        }
        for entry in judgment.verdicts
    ]


def _judgments(history: History, iteration: v1.Iteration) -> dict[str, Any]:
    members = [
        {
            "member": member.name.rpartition("/")[2],
            "config": member.config,
            "seed": member.seed,
            "env_step": member.evaluations[-1].env_step if member.evaluations else 0,
            "score": round(member.judgment.score, 4),
            "diagnosis": member.judgment.diagnosis,
            "judged_by": member.judgment.judged_by,
        }
        for member in history.training_members(iteration.number)
    ]
    labels = [
        {"rollout": entry.rollout, "score": entry.score, "comment": entry.comment}
        for entry in history.labels
        if entry.rollout.startswith(f"{iteration.name}/")
    ]
    return {
        "iteration": iteration.number,
        **_score(iteration),
        "diagnosis": iteration.judgment.diagnosis,
        "judged_by": iteration.judgment.judged_by,
        "without_video": iteration.judgment.without_video,
        "failure_tags": list(iteration.judgment.failure_tags),
        "verdicts": _verdicts(iteration.judgment),
        "members": members,
        "labels": labels,
    }


def _rollouts(history: History, iteration: v1.Iteration) -> dict[str, Any]:
    """The rollouts in order; beyond the limit, those of each member's last checkpoints, the median ones first."""
    ranked = [
        (len(member.evaluations) - place, rollout.label != "median", member, evaluation, rollout)
        for member in history.training_members(iteration.number)
        for place, evaluation in enumerate(member.evaluations)
        for rollout in evaluation.rollouts
    ]
    order = sorted(range(len(ranked)), key=lambda at: ranked[at][:2])[:_MAX_ROLLOUTS]
    rows = [_rollout(*ranked[at][2:]) for at in sorted(order)]
    return {"rollouts": rows, "left_out": len(ranked) - len(rows)}


def _rollout(member: v1.Member, evaluation: v1.Evaluation, rollout: v1.Rollout) -> dict[str, Any]:
    return {
        "rollout": rollout.artifact,
        "member": member.name.rpartition("/")[2],
        "config": member.config,
        "seed": member.seed,
        "env_step": evaluation.env_step,
        "label": rollout.label,
        "return": round(getattr(rollout, "return"), 4),
        "proposed_return": round(rollout.proposed_return, 4),
        "score": round(rollout.judgment.score, 4) if rollout.HasField("judgment") else None,
        "diagnosis": rollout.judgment.diagnosis,
        "judged_by": rollout.judgment.judged_by,
        "verdicts": _verdicts(rollout.judgment),
    }


def _compare(first: v1.Iteration, second: v1.Iteration) -> dict[str, Any]:
    pair = [_best_hyperparameters(entry) for entry in (first, second)]
    names = sorted(set(pair[0]) | set(pair[1]))
    changed = {name: [pair[0].get(name), pair[1].get(name)] for name in names if pair[0].get(name) != pair[1].get(name)}
    return {"first": _score(first), "second": _score(second), "diff": diff(first, second), "hyperparameters": changed}


def _best_hyperparameters(iteration: v1.Iteration) -> dict[str, Any]:
    best = next((entry for entry in iteration.reward.configs if entry.id == iteration.reward.best_config), None)
    return _hyperparameters(best) if best is not None else {}


def changes(history: History) -> list[dict[str, Any]]:
    """Return the ledger of changes: each revision's change, with the scores before and after it."""
    ledger = []
    for entry in history.iterations:
        if not entry.parent or not entry.HasField("judgment"):
            continue
        before, after = history[number_of(entry.parent)].judgment.score, entry.judgment.score
        row = {"iteration": entry.number, "based_on": number_of(entry.parent), "planned_change": entry.planned_change}
        scores = {"score_before": round(before, 4), "score_after": round(after, 4), "delta": round(after - before, 4)}
        ledger.append({**row, **scores})
    return ledger


def change_lines(history: History) -> list[str]:
    """Return the ledger, a line each."""
    return [
        f"iteration {row['iteration']} (from {row['based_on']}): {row['planned_change']}: "
        f"{row['score_before']:.2f} -> {row['score_after']:.2f}"
        for row in changes(history)
    ]


def tree(history: History) -> str:
    """Return the iterations as an indented tree, ``*`` at the best."""
    children: dict[int, list[v1.Iteration]] = {}
    names = {entry.name for entry in history.iterations}
    for entry in history.iterations:
        children.setdefault(number_of(entry.parent) if entry.parent in names else 0, []).append(entry)
    lines: list[str] = []
    stack = [(entry, 0) for entry in reversed(children.get(0, []))]
    while stack:
        entry, depth = stack.pop()
        star = " *" if entry.name == history.best else ""
        score = f"{entry.judgment.score:.2f}" if entry.HasField("judgment") else "-"
        lines.append(f"{'  ' * depth}{entry.number} {score}{star} {entry.planned_change}".rstrip())
        stack += [(child, depth + 1) for child in reversed(children.get(entry.number, []))]
    return "\n".join(lines)


def _lesson(entry: lessons.TieredLesson) -> dict[str, Any]:
    return {"number": entry.number, "tier": entry.tier_name, "text": entry.text, "iteration": entry.support[-1]}


def diff(first: v1.Iteration, second: v1.Iteration) -> str:
    """Return the unified diff of two proposals."""
    lines = difflib.unified_diff(
        first.reward.source.splitlines(),
        second.reward.source.splitlines(),
        f"iteration {first.number}",
        f"iteration {second.number}",
        lineterm="",
    )
    return "\n".join(lines)


def dynamics(history: History, number: int) -> str:
    """Return the course of an iteration's training in words: returns by member, and metrics by config over its seeds."""
    members = history.training_members(number)
    lines = []
    for member in members:
        course = ", ".join(
            f"{entry.env_step}: {mean(entry.proposed_returns or entry.returns):.4g}" for entry in member.evaluations
        )
        broke = f"; stopped: {member.failure.message}" if member.HasField("failure") else ""
        lines.append(f"config {member.config} seed {member.seed}: return by env step {course or 'none'}{broke}")
    for config in dict.fromkeys(member.config for member in members):
        group = [member for member in members if member.config == config]
        if trend := merge_trends([entry for entry in map(history.trend, group) if entry]):
            over = f"means over {PARTS} parts of the training, first to last"
            lines.append(f"config {config}, metrics over all seeds ({over}): {trend_text(trend)}")
        else:
            last = (", ".join(f"{name} {value:.4g}" for name, value in sorted(m.metrics.items())) for m in group)
            lines.append(f"config {config}, last metrics by seed: {'; '.join(last)}")
    return "\n".join(lines)
