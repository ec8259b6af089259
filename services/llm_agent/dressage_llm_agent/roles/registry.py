"""The role that performs a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.code_reviewer.role import ROLE as CODE_REVIEWER
from dressage_llm_agent.roles.critic.role import ROLE as CRITIC
from dressage_llm_agent.roles.elicitor.role import ROLE as ELICITOR
from dressage_llm_agent.roles.feedback_author.role import ROLE as FEEDBACK_AUTHOR
from dressage_llm_agent.roles.fixer.role import ROLE as FIXER
from dressage_llm_agent.roles.judge_author.role import ROLE as JUDGE_AUTHOR
from dressage_llm_agent.roles.parameter_proposer.role import ROLE as PARAMETER_PROPOSER
from dressage_llm_agent.roles.policy_author.role import ROLE as POLICY_AUTHOR
from dressage_llm_agent.roles.program_author.role import ROLE as PROGRAM_AUTHOR
from dressage_llm_agent.roles.program_reviser.role import ROLE as PROGRAM_REVISER
from dressage_llm_agent.roles.reflector.role import ROLE as REFLECTOR
from dressage_llm_agent.roles.reviser.role import ROLE as REVISER
from dressage_llm_agent.roles.reward_author.role import ROLE as REWARD_AUTHOR
from dressage_llm_agent.roles.synthesiser.role import ROLE as SYNTHESISER
from dressage_llm_agent.roles.video_criteria.role import ROLE as VIDEO_CRITERIA
from dressage_llm_agent.roles.video_judge.role import VideoJudge
from dressage_llm_agent.roles.video_question.role import VideoQuestion
from dressage_llm_agent.tasks import Dialect, RoleTask, role_name

_TEXT_ROLES: dict[str, Role[Any]] = {
    role.name: role
    for role in (
        ELICITOR,
        REWARD_AUTHOR,
        JUDGE_AUTHOR,
        FIXER,
        REVISER,
        CODE_REVIEWER,
        VIDEO_CRITERIA,
        SYNTHESISER,
        PARAMETER_PROPOSER,
        CRITIC,
        POLICY_AUTHOR,
        FEEDBACK_AUTHOR,
        REFLECTOR,
        PROGRAM_AUTHOR,
        PROGRAM_REVISER,
    )
}
_VIDEO_ROLES: dict[str, Callable[[Dialect], Role[Any]]] = {
    VideoJudge.name: VideoJudge,
    VideoQuestion.name: VideoQuestion,
}


def role_of(task: RoleTask, *, dialect: Dialect = "grid") -> Role[Any]:
    """Return the role that performs a task.

    :param dialect: how the model is sent video, for the roles that need it.
    """
    name = role_name(task)
    return _VIDEO_ROLES[name](dialect) if name in _VIDEO_ROLES else _TEXT_ROLES[name]
