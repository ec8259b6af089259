"""Renders the roles' templates. Text of people is quoted, so that a model does not take it for instructions."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2
from dressage.envs.cards import EnvironmentCard
from dressage.envs.describe import describe
from dressage.envs.options import EnvOptions
from dressage.training.preset import load_preset

from dressage_llm_agent.provider.base import Attachment, Message

if TYPE_CHECKING:
    from jinja2 import Environment

_FENCE = "<<<"


def render(name: str, **values: object) -> str:
    """Return the text of a template, such as ``reward_author/user.j2``."""
    return _environment().get_template(name).render(**values).strip() + "\n"


def opening(role: str, **values: object) -> tuple[Message, ...]:
    """Return the system and the user message of a role."""
    brief = values.get("brief")
    if isinstance(brief, agent_pb.Brief):
        values["budget_left"] = _budget(brief.facts.budget)
        values.setdefault("discount", load_preset(brief.environment).ppo.discount)
    return (
        Message("system", render(f"{role}/system.j2", **values)),
        Message("user", render(f"{role}/user.j2", **values)),
    )


def environment(brief: agent_pb.Brief, card: EnvironmentCard) -> str:
    """Return the description of the environment, with the session's options in effect."""
    options = brief.facts.environment_options
    return describe(card, EnvOptions.from_dict({field.name: value for field, value in options.ListFields()}))


def _budget(budget: session_pb2.Budget) -> list[str]:
    """Return the limits that are set, in words."""
    limits = [f"{budget.env_steps:,} environment steps of all seeds together"] if budget.env_steps else []
    limits += (
        [f"{budget.wall_time.ToTimedelta().total_seconds() / 60:.0f} minutes"] if budget.HasField("wall_time") else []
    )
    limits += [f"${budget.dollars:.2f} of model calls"] if budget.HasField("dollars") else []
    return limits + ([f"{budget.tokens:,} tokens of model calls"] if budget.tokens else [])


def with_attachments(messages: tuple[Message, ...], attachments: tuple[Attachment, ...]) -> tuple[Message, ...]:
    """Return the messages with attachments on the last one."""
    return (*messages[:-1], replace(messages[-1], attachments=attachments))


def repair(problems: tuple[str, ...]) -> Message:
    """Return the message that reports the problems of a reply to the model."""
    return Message("user", render("shared/repair.j2", problems=problems))


def quote(text: str) -> str:
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
    environment.filters["quote"] = quote
    return environment
