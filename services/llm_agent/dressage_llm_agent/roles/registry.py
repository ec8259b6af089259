"""The role that a task belongs to."""

from __future__ import annotations

from typing import Any

from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.code_reviewer.role import ROLE as CODE_REVIEWER
from dressage_llm_agent.roles.elicitor.role import ROLE as ELICITOR
from dressage_llm_agent.roles.fixer.role import ROLE as FIXER
from dressage_llm_agent.roles.judge_author.role import ROLE as JUDGE_AUTHOR
from dressage_llm_agent.roles.reviser.role import ROLE as REVISER
from dressage_llm_agent.roles.reward_author.role import ROLE as REWARD_AUTHOR
from dressage_llm_agent.roles.synthesiser.role import ROLE as SYNTHESISER
from dressage_llm_agent.roles.video_criteria.role import ROLE as VIDEO_CRITERIA
from dressage_llm_agent.roles.video_judge.role import ROLE as VIDEO_JUDGE
from dressage_llm_agent.roles.video_question.role import ROLE as VIDEO_QUESTION
from dressage_llm_agent.tasks import (
    AnyTask,
    CodeReviewerTask,
    ElicitorTask,
    FixerTask,
    JudgeAuthorTask,
    ReviserTask,
    RewardAuthorTask,
    SynthesiserTask,
    VideoCriteriaTask,
    VideoJudgeTask,
    VideoQuestionTask,
)

_ROLES: dict[type[AnyTask], Role[Any]] = {
    ElicitorTask: ELICITOR,
    RewardAuthorTask: REWARD_AUTHOR,
    JudgeAuthorTask: JUDGE_AUTHOR,
    FixerTask: FIXER,
    ReviserTask: REVISER,
    CodeReviewerTask: CODE_REVIEWER,
    VideoCriteriaTask: VIDEO_CRITERIA,
    VideoJudgeTask: VIDEO_JUDGE,
    VideoQuestionTask: VIDEO_QUESTION,
    SynthesiserTask: SYNTHESISER,
}


def role_of(task: AnyTask) -> Role[Any]:
    """The role that answers a task."""
    return _ROLES[type(task)]


def role_names() -> tuple[str, ...]:
    """Names of all roles."""
    return tuple(role.name for role in _ROLES.values())
