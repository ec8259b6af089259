"""The reward author: reasoning and one module, also to repair its own."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.options import EnvOptions
from dressage.errors import InvalidArgument

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import blocks, prose, python_source, sections

SECTION = "Environment"
_OFFERED = ("max_episode_steps", "terminate_when_unhealthy")
_LONGEST = 10
"""Longest episode that may be asked for, as a multiple of the stock environment's."""


def requestable_options(task: agent_pb.RewardAuthorTask, card: EnvironmentCard) -> list[str]:
    """Return the options that the author may ask for: the environment has them, and the caller did not set them.

    Only the first reward may ask: another environment would change what earlier scores mean.
    """
    if task.HasField("repair") or not task.brief.HasField("facts"):
        return []
    chosen = {field.name for field, _ in task.brief.facts.environment_options.ListFields()}
    return [name for name in _OFFERED if name in card.options and name not in chosen]


def parse_environment(
    text: str, reasoning: str, task: agent_pb.RewardAuthorTask, problems: list[str]
) -> session_pb2.EnvironmentOptions | None:
    """Return the options in a reply's JSON block; None for none.

    :param reasoning: the section with the reasons.
    :param problems: gets what is wrong with them.
    """
    objects = [block.text for block in blocks(text) if block.language == "json"]
    if not objects:
        return None
    card = load_card(task.brief.environment)
    names = requestable_options(task, card)
    try:
        values = json.loads(objects[0])
        if not isinstance(values, dict) or len(objects) > 1:
            raise ValueError("it must be one JSON object")
        _check(values, names, card)
    except (ValueError, InvalidArgument) as error:
        problems.append(f"'## {SECTION}' cannot be used: {error}")
        return None
    if values and not reasoning.strip():
        problems.append(f"'## {SECTION}' must say why the behaviour needs each option")
    return session_pb2.EnvironmentOptions(**values) if values else None


def _check(values: dict[str, object], names: Sequence[str], card: EnvironmentCard) -> None:
    """Refuse options that are not offered, and values out of range.

    :raises ValueError: with a message for the model.
    :raises InvalidArgument: for a value out of range.
    """
    for name in values:
        if name not in names:
            raise ValueError(f"{name!r} cannot be asked for; there are {', '.join(names) or 'no options'}")
    steps = EnvOptions.from_dict(values).max_episode_steps
    if steps is not None and steps > _LONGEST * card.max_episode_steps:
        raise ValueError(f"max_episode_steps is {steps}; at most {_LONGEST * card.max_episode_steps} can be asked for")


class RewardAuthor(Role[agent_pb.RewardAuthorTask]):
    """Intent to reward."""

    def messages(self, task: agent_pb.RewardAuthorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        names = " ".join(sorted(REWARD_NAMES))
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            array_names=names,
            subject="reward",
            repair=task.repair if task.HasField("repair") else None,
            options=requestable_options(task, card),
        )

    def parse(self, text: str, task: agent_pb.RewardAuthorTask) -> agent_pb.RewardProposal:
        """Return the proposal. Reasoning may be below its heading or anywhere outside of the code."""
        problems: list[str] = []
        source = ""
        try:
            source = python_source(text, function="reward")
        except ReplyProblem as problem:
            problems += problem.problems
        written = sections(text)
        why = written.get(SECTION.lower(), "")
        options = parse_environment(text, why, task, problems)
        if problems:
            raise ReplyProblem(*problems)
        return agent_pb.RewardProposal(
            source=source,
            reasoning=written.get("reasoning") or prose(text),
            environment_options=options,
            environment_reasoning=why if options is not None else "",
        )


ROLE = RewardAuthor
