"""The video judge: one vote, a status for each visual criterion; `combine` puts votes together by the fixed rubric."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from dressage.contracts.rubric import STATUS_SCORES, status_mean
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.pictures import attachments
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.tasks import Ballot, VideoJudgeTask, VideoVerdict, VisualScore

_SEEN, _DIAGNOSIS = 600, 1000


class VideoJudge:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "video_judge"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: VideoJudgeTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`; the pictures go with the last message."""
        opening = prompts.opening(
            self.name,
            brief=task.brief,
            title=card.title,
            description=card.description,
            criteria=task.criteria,
            footage=task.footage,
        )
        return prompts.with_attachments(opening, attachments(task.footage))

    def parse(self, text: str, task: VideoJudgeTask) -> Ballot:
        """See `Role`."""
        data = json_object(text)
        entries, diagnosis = data.get("criteria"), data.get("diagnosis", "")
        if not isinstance(entries, list):
            raise ReplyProblem("'criteria' must be a list of objects")
        problems: list[str] = [] if isinstance(diagnosis, str) else ["'diagnosis' must be a string"]
        found = {_plain(entry.get("title")): entry for entry in entries if isinstance(entry, dict)}
        statuses, seen = [], []
        for criterion in task.criteria:
            entry = found.get(_plain(criterion.title))
            if entry is None:
                problems.append(f"the criterion {criterion.title!r} is missing")
                continue
            if entry.get("status") not in STATUS_SCORES:
                shown = str(entry.get("status"))[:40]
                problems.append(f"the status of {criterion.title!r} is {shown!r}; it must be met, partly or not_met")
            statuses.append(str(entry.get("status")))
            seen.append(str(entry.get("seen") or "")[:_SEEN])
        if problems:
            raise ReplyProblem(*problems)
        return Ballot(tuple(statuses), tuple(seen), diagnosis[:_DIAGNOSIS])


def combine(task: VideoJudgeTask, ballots: Sequence[Ballot]) -> VideoVerdict:
    """The verdict of the votes: means over them, the spread of their scores, and the words of the most typical one.

    :param ballots: at least one.
    """
    votes = tuple(status_mean(ballot.statuses) for ballot in ballots)
    score = fmean(votes)
    typical = min(range(len(votes)), key=lambda place: (abs(votes[place] - score), place))
    criteria = []
    for index, criterion in enumerate(task.criteria):
        statuses = tuple(ballot.statuses[index] for ballot in ballots)
        criteria.append(VisualScore(criterion, status_mean(statuses), statuses, ballots[typical].seen[index]))
    return VideoVerdict(score, pstdev(votes), votes, tuple(criteria), ballots[typical].diagnosis, task.footage.dialect)


def _plain(title: Any) -> str:
    """A title without what a model may change when it copies one."""
    return " ".join(str(title).lower().strip(" .:").split())


ROLE = VideoJudge()
