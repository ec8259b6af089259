"""The role that a task belongs to."""

from __future__ import annotations

from typing import Any

from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.elicitor.role import ROLE as ELICITOR
from dressage_llm_agent.roles.fixer.role import ROLE as FIXER
from dressage_llm_agent.roles.judge_author.role import ROLE as JUDGE_AUTHOR
from dressage_llm_agent.roles.reviser.role import ROLE as REVISER
from dressage_llm_agent.roles.reward_author.role import ROLE as REWARD_AUTHOR
from dressage_llm_agent.tasks import (
    ElicitorTask,
    FixerTask,
    JudgeAuthorTask,
    ReviserTask,
    RewardAuthorTask,
    RoleTask,
)

_ROLES: dict[type[RoleTask], Role[Any]] = {
    ElicitorTask: ELICITOR,
    RewardAuthorTask: REWARD_AUTHOR,
    JudgeAuthorTask: JUDGE_AUTHOR,
    FixerTask: FIXER,
    ReviserTask: REVISER,
}


def role_of(task: RoleTask) -> Role[Any]:
    """The role that answers a task."""
    return _ROLES[type(task)]


def role_names() -> tuple[str, ...]:
    """Names of all roles."""
    return tuple(role.name for role in _ROLES.values())
