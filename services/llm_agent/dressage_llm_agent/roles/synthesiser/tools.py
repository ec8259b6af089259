"""The tools of a synthesis; its caller, the judge service, runs them."""

from __future__ import annotations

from dressage.contracts.footage import MAX_FPS

from dressage_llm_agent.provider.base import ToolSpec

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
