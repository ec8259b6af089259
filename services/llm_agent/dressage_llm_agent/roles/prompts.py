"""Renders the roles' templates. Text of people is quoted, so that a model does not take it for instructions."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from dressage_llm_agent.provider.base import Attachment, Message

if TYPE_CHECKING:
    from jinja2 import Environment

_FENCE = "<<<"


def render(name: str, **values: object) -> str:
    """Return the text of a template, such as ``reward_author/user.j2``."""
    return _environment().get_template(name).render(**values).strip() + "\n"


def opening(role: str, **values: object) -> tuple[Message, ...]:
    """Return the system and the user message of a role."""
    return (
        Message("system", render(f"{role}/system.j2", **values)),
        Message("user", render(f"{role}/user.j2", **values)),
    )


def with_attachments(messages: tuple[Message, ...], attachments: tuple[Attachment, ...]) -> tuple[Message, ...]:
    """Return the messages with attachments on the last one."""
    return (*messages[:-1], replace(messages[-1], attachments=attachments))


def repair(role: str, problems: tuple[str, ...]) -> Message:
    """Return the message that reports the problems of a reply to the model."""
    return Message("user", render(f"{role}/repair.j2", problems=problems))


def quoted(text: str) -> str:
    """Return a person's text between delimiters, which are escaped within the text."""
    return f"{_FENCE}\n{text.replace(_FENCE, '< <<').replace('>>>', '> >>').strip()}\n>>>"


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Prompts are plain text: HTML escapes would change them.
    environment = Environment(
        loader=PackageLoader("dressage_llm_agent", "roles"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["quoted"] = quoted
    return environment
