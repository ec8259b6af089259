"""The judge author: reasoning, the applicable null controls and one module, also to repair its own."""

from __future__ import annotations

import re

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import missing_sections, prose, python_source, sections

NULL_CONTROLS = ("random", "untrained", "motionless", "time_reversed")
"""Kinds of null controls."""


class JudgeAuthor(Role[agent_pb.JudgeAuthorTask]):
    """Intent to judge."""

    def messages(self, task: agent_pb.JudgeAuthorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        threshold = f"{task.pass_threshold:g}"
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            pass_threshold=threshold,
            subject="judge",
            repair=task.repair if task.HasField("repair") else None,
        )

    def parse(self, text: str, task: agent_pb.JudgeAuthorTask) -> agent_pb.JudgeProposal:
        problems: list[str] = []
        source = ""
        controls: tuple[str, ...] = ()
        try:
            source = python_source(text, function="judge")
        except ReplyProblem as problem:
            problems += problem.problems
        written = sections(text)
        missing = missing_sections(written, ["Null controls"])
        problems += missing
        if not missing:
            controls = _controls(written["null controls"], problems)
        reasoning = written.get("reasoning", "")
        why = _why(written.get("null controls", "")) or reasoning
        if not missing and not why:
            problems.append(
                "say below '## Null controls' why each contradicts the behaviour, and why the others do not"
            )
        if problems:
            raise ReplyProblem(*problems)
        return agent_pb.JudgeProposal(
            source=source,
            null_controls=controls,
            reasoning=reasoning or prose(text),
            null_controls_reasoning=why,
        )


def _why(text: str) -> str:
    """The section's text after the line of names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[1:])


def _controls(text: str, problems: list[str]) -> tuple[str, ...]:
    """The names in the section's first line."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    words = re.findall(r"[a-z_]+", line.lower().replace("time-reversed", "time_reversed"))
    named = tuple(name for name in NULL_CONTROLS if name in words)
    if not named and "none" not in words:
        problems.append(f"'## Null controls' must name some of {', '.join(NULL_CONTROLS)}, or say none")
    return named


ROLE = JudgeAuthor
