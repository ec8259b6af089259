"""The code reviewer: findings as JSON and, unless it approves, one corrected module."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import blocks, json_object, python_source

FINDING_KINDS = (
    "reward_hacking", "sign", "frame", "dead_term", "physics_exploit", "fighting_terms", "threshold", "memory", "other",
)  # fmt: skip
"""Kinds of findings."""
MAX_ROUNDS = 3
_MOST_FINDINGS = 20
_MESSAGE = 1000
_LINES = 1_000_000
_SEVERITIES = ("blocker", "warning")


class CodeReviewer(Role[agent_pb.CodeReviewerTask]):
    """Code to findings and corrected code."""

    def messages(self, task: agent_pb.CodeReviewerTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            subject=task.subject,
            source=task.source,
            round=task.round,
            rounds=MAX_ROUNDS,
            earlier=task.earlier_findings,
            pass_threshold=f"{task.pass_threshold:g}",
            kinds=" | ".join(FINDING_KINDS),
            array_names=" ".join(sorted(REWARD_NAMES)),
        )

    def parse(self, text: str, task: agent_pb.CodeReviewerTask) -> agent_pb.Review:
        """Return the review. One with a blocker does not approve, whatever its `approved` is."""
        data = json_object("\n".join(f"```json\n{b.text}```" for b in blocks(text) if b.language == "json") or text)
        problems: list[str] = []
        approved, summary = data.get("approved"), data.get("summary", "")
        if not isinstance(approved, bool):
            problems.append("'approved' must be true or false")
        if not isinstance(summary, str):
            problems.append("'summary' must be a string")
        entries = data.get("findings", [])
        if not isinstance(entries, list):
            raise ReplyProblem(*problems, "'findings' must be a list")
        findings = [_finding(index, entry, problems) for index, entry in enumerate(entries[:_MOST_FINDINGS])]
        blocked = any(finding.severity == "blocker" for finding in findings)
        if approved is False and not blocked:
            problems.append("what is not approved needs a finding with the severity 'blocker'")
        source = ""
        if blocked:
            try:
                source = python_source(text, function=task.subject)
            except ReplyProblem as problem:
                problems += problem.problems
        if problems:
            raise ReplyProblem(*problems)
        return agent_pb.Review(approved=not blocked, findings=findings, source=source, summary=summary[:_MESSAGE])


def _finding(index: int, entry: Any, problems: list[str]) -> agent_pb.ReviewFinding:
    path = f"findings[{index}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("message"), str) or not entry["message"].strip():
        problems.append(f"{path} must be an object with a 'message'")
        return agent_pb.ReviewFinding(kind="other", severity="warning", message="?")
    kind, severity, line = entry.get("kind"), entry.get("severity"), entry.get("line", 0)
    if kind not in FINDING_KINDS:
        kind = "other"
    if severity not in _SEVERITIES:
        problems.append(f"{path}.severity is {str(severity)[:40]!r}; it must be one of {', '.join(_SEVERITIES)}")
        severity = "warning"
    is_line = isinstance(line, int) and not isinstance(line, bool) and 0 < line < _LINES
    return agent_pb.ReviewFinding(
        kind=str(kind),
        severity=str(severity),
        line=line if is_line else 0,
        message=entry["message"].strip()[:_MESSAGE],
    )


ROLE = CodeReviewer
