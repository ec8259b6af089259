"""The video judge: one vote with a status for each visual criterion. `combine` applies the fixed rubric to the votes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.rubric import STATUSES, UNKNOWN, status_mean
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.provider.vision import Dialect
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role, Vote
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.roles.video import attachments, template_values

_SEEN, _DIAGNOSIS = 600, 1000


class VideoJudge(Role[agent_pb.VideoJudgeTask]):
    """Frames of an episode to scores."""

    sees_frames = True

    def messages(self, task: agent_pb.VideoJudgeTask, card: EnvironmentCard) -> tuple[Message, ...]:
        opening = prompts.opening(
            self.name,
            brief=task.brief,
            title=card.title,
            description=card.description,
            criteria=task.criteria,
            footage=template_values(_shots(task), self.dialect),
            window_reason=task.window_reason,
        )
        return prompts.with_attachments(opening, attachments(_shots(task), self.dialect))

    def parse(self, text: str, task: agent_pb.VideoJudgeTask) -> Vote:
        data = json_object(text)
        entries, diagnosis = data.get("criteria"), data.get("diagnosis", "")
        if not isinstance(entries, list):
            raise ReplyProblem("'criteria' must be a list of objects")
        problems: list[str] = [] if isinstance(diagnosis, str) else ["'diagnosis' must be a string"]
        by_title = {_plain(entry.get("title")): entry for entry in entries if isinstance(entry, dict)}
        statuses, observations = [], []
        for criterion in task.criteria:
            entry = by_title.get(_plain(criterion.title))
            if entry is None:
                problems.append(f"the criterion {criterion.title!r} is missing")
                continue
            if entry.get("status") not in STATUSES:
                status = str(entry.get("status"))[:40]
                expected = ", ".join(STATUSES)
                problems.append(f"the status of {criterion.title!r} is {status!r}; it must be one of {expected}")
            statuses.append(str(entry.get("status")))
            observations.append(str(entry.get("seen") or "")[:_SEEN])
        if problems:
            raise ReplyProblem(*problems)
        return Vote(tuple(statuses), tuple(observations), diagnosis[:_DIAGNOSIS])


def combine(task: agent_pb.VideoJudgeTask, votes: Sequence[Vote], dialect: Dialect) -> agent_pb.VideoVerdict:
    """Combine votes to a verdict: mean scores, their standard deviation, and the texts of the vote closest to the mean.

    A vote whose statuses are all unknown has no score.

    :param votes: at least one.
    """
    scored = [(score, vote) for vote in votes if (score := status_mean(vote.statuses)) is not None]
    scores = [score for score, _ in scored]
    mean = fmean(scores) if scores else 0.0
    closest = min(scored, key=lambda entry: abs(entry[0] - mean))[1] if scored else votes[0]
    every = [status for vote in votes for status in vote.statuses]
    verdict = agent_pb.VideoVerdict(
        score=mean,
        spread=pstdev(scores) if scores else 0.0,
        votes=scores,
        diagnosis=closest.diagnosis,
        dialect=dialect,
        known=1 - every.count(UNKNOWN) / len(every),
    )
    for index, criterion in enumerate(task.criteria):
        statuses = [vote.statuses[index] for vote in votes]
        verdict.criteria.add(
            criterion=criterion, score=status_mean(statuses), statuses=statuses, seen=closest.observations[index]
        )
    return verdict


def _shots(task: agent_pb.VideoJudgeTask) -> list[agent_pb.EpisodeVideo]:
    """The overview, if there is one, and the window."""
    return [task.overview, task.video] if task.HasField("overview") else [task.video]


def _plain(title: Any) -> str:
    """A title without case, punctuation at its ends and spacing, which models change when they copy one."""
    return " ".join(str(title).lower().strip(" .:").split())


ROLE = VideoJudge
