"""The synthesiser: settles each criterion of both judges; the fixed rubric gives the score."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts import rubric
from dressage.contracts.footage import MAX_ASK_FRAMES, MAX_FPS
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import json_object

TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "ask_video",
        "Asks a model that sees frames of a window of the episode, sampled at a rate.",
        {
            "type": "object",
            "properties": {
                "question": {"type": "string", "minLength": 1, "maxLength": 2000, "description": "what to find out"},
                "start": {"type": "number", "minimum": 0, "description": "first second of the window"},
                "end": {"type": "number", "minimum": 0, "description": "last second of the window"},
                "fps": {"type": "number", "minimum": 0.1, "maximum": MAX_FPS, "description": "frames per second"},
            },
            "required": ["question", "start", "end", "fps"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        "run_check",
        "Runs check(trajectory, np) -> {name: number} on the recorded episode, in the sandbox.",
        {
            "type": "object",
            "properties": {
                "code": {"type": "string", "minLength": 1, "maxLength": 20_000, "description": "the Python module"},
            },
            "required": ["code"],
            "additionalProperties": False,
        },
    ),
)


TOOL_ROUNDS = 3
_DECIDERS = ("code", "video", "both")
_WHOLE = "the whole"
_EVIDENCE, _REASONING = 600, 2000


class Synthesiser(Role[agent_pb.SynthesiserTask]):
    """Two verdicts that differ to one verdict."""

    tools = TOOLS
    tool_rounds = TOOL_ROUNDS

    def messages(self, task: agent_pb.SynthesiserTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            episode_seconds=task.episode_seconds,
            code_score=task.code_score,
            code_criteria=_code_criteria(task),
            code_evidence=dict(sorted(task.code_evidence.items())),
            judge_source=task.judge_source,
            video_score=task.video_score,
            video_spread=task.video_spread,
            visual_scores=task.visual_scores,
            max_rounds=TOOL_ROUNDS,
            ask_frames=MAX_ASK_FRAMES,
            max_fps=MAX_FPS,
            video_known=any(entry.HasField("score") for entry in task.visual_scores),
        )

    def parse(self, text: str, task: agent_pb.SynthesiserTask) -> agent_pb.Synthesis:
        data = json_object(text)
        entries = data.get("criteria")
        if not isinstance(entries, list):
            raise ReplyProblem("'criteria' must be a list of objects")
        problems: list[str] = []
        names = {"code": list(_code_criteria(task)), "video": [entry.criterion.title for entry in task.visual_scores]}
        criteria = [
            entry
            for source, of_source in names.items()
            for name in of_source
            if (entry := _read_criterion(source, name, entries, problems)) is not None
        ]
        decided_by, reasoning = data.get("decided_by"), data.get("reasoning")
        if decided_by not in _DECIDERS:
            problems.append(f"'decided_by' is {str(decided_by)[:40]!r}; it must be one of {', '.join(_DECIDERS)}")
        if not isinstance(reasoning, str) or not reasoning.strip():
            problems.append("'reasoning' must say which evidence decided")
        if problems:
            raise ReplyProblem(*problems)
        means = {source: rubric.status_mean(e.status for e in criteria if e.source == source) for source in names}
        score = rubric.mean_score(means["code"], means["video"])
        if score is None:
            raise ReplyProblem("every status is unknown; settle at least the criteria of the code from its numbers")
        return agent_pb.Synthesis(
            score=score, decided_by=str(decided_by), criteria=criteria, reasoning=str(reasoning).strip()[:_REASONING]
        )


def _code_criteria(task: agent_pb.SynthesiserTask) -> dict[str, float]:
    """The code judge's criteria by name; a judge without criteria has one, its score."""
    return dict(sorted(task.code_criteria.items())) or {_WHOLE: task.code_score}


def _read_criterion(
    source: str, name: str, entries: list[Any], problems: list[str]
) -> agent_pb.SettledCriterion | None:
    identity = (source, name.lower().strip(" .:"))
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        if (entry.get("source"), str(entry.get("name")).lower().strip(" .:")) != identity:
            continue
        status, evidence = entry.get("status"), entry.get("evidence")
        if status not in rubric.STATUSES:
            expected = ", ".join(rubric.STATUSES)
            problems.append(f"the status of {name!r} is {str(status)[:40]!r}; it must be one of {expected}")
        if not isinstance(evidence, str) or not evidence.strip():
            problems.append(f"{name!r} needs the evidence that settles it")
        return agent_pb.SettledCriterion(
            name=name, source=source, status=str(status), evidence=str(evidence)[:_EVIDENCE]
        )
    problems.append(f"the criterion {name!r} (source {source}) is missing")
    return None


ROLE = Synthesiser
