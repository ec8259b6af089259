"""What roles are asked and what they answer, as plain values: the protos' messages without protobuf.

`translate` turns messages into these and back; everything else of the service knows only these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Subject = Literal["reward", "judge"]
HyperparameterValue = float | int | tuple[int, ...]
Dialect = Literal["video", "video_url", "grid", "frames"]
"""How pictures are shown: a clip as a file, a clip by URL, pages of numbered frames, the frames one by one."""


@dataclass(frozen=True)
class Criterion:
    """One measurable aspect of an intent."""

    title: str
    description: str = ""
    category: str = ""
    default_on: bool = True


@dataclass(frozen=True)
class Brief:
    """What every author needs to know.

    :param environment: id of the environment, such as ``Hopper-v5``.
    """

    intent: str
    environment: str
    criteria: tuple[Criterion, ...] = ()


@dataclass(frozen=True)
class Failure:
    """One rule that generated code broke; ``line`` counts from 1, 0 for none."""

    rule: str
    line: int
    message: str
    seen: str = ""


@dataclass(frozen=True)
class PastIteration:
    """An iteration of the session so far.

    :param score: between 0 and 1; None where it was not judged.
    :param scores: by criterion, between 0 and 1.
    :param hyperparameters: what differs from the environment's preset, for the best config.
    """

    number: int
    source: str
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    diagnosis: str = ""
    failure_tags: tuple[str, ...] = ()
    planned_change: str = ""
    lesson: str = ""
    warnings: tuple[str, ...] = ()
    hyperparameters: Mapping[str, HyperparameterValue] = field(default_factory=dict)


@dataclass(frozen=True)
class ElicitorTask:
    """Intent to criteria."""

    brief: Brief


@dataclass(frozen=True)
class RewardAuthorTask:
    """Intent to reward."""

    brief: Brief


@dataclass(frozen=True)
class JudgeAuthorTask:
    """Intent to judge; ``pass_threshold`` is the score from which the behaviour counts as achieved."""

    brief: Brief
    pass_threshold: float


@dataclass(frozen=True)
class FixerTask:
    """Check failures to repaired code."""

    brief: Brief
    subject: Subject
    source: str
    failures: tuple[Failure, ...]
    round: int = 0
    earlier_explanations: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownLesson:
    """A lesson in force; ``number`` is what it is referred to by."""

    number: int
    tier: str
    text: str
    iteration: int = 0


@dataclass(frozen=True)
class ReviserTask:
    """History to a revised reward; the latest iteration is the last of ``history``.

    :param known_lessons: with their tiers; in place of ``lessons`` where there are any.
    :param tried_changes: one line each, the oldest first.
    :param best_iteration: its number; 0 for none.
    :param algorithm: `ppo` or `sac`.
    """

    brief: Brief
    history: tuple[PastIteration, ...]
    notes: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    tune_hyperparameters: bool = False
    iterations_without_improvement: int = 0
    dynamics: str = ""
    known_lessons: tuple[KnownLesson, ...] = ()
    tried_changes: tuple[str, ...] = ()
    best_iteration: int = 0
    algorithm: str = "ppo"


RoleTask = ElicitorTask | RewardAuthorTask | JudgeAuthorTask | FixerTask | ReviserTask
"""Tasks that need no language model: the template author answers them, too."""


@dataclass(frozen=True)
class CodeReviewerTask:
    """Code to findings and corrected code; ``round`` counts from 1."""

    brief: Brief
    subject: Subject
    source: str
    round: int = 1
    earlier_findings: tuple[str, ...] = ()
    pass_threshold: float = 0.7


@dataclass(frozen=True)
class VisualCriterion:
    """One thing to look for in pictures of an episode."""

    title: str
    description: str = ""


@dataclass(frozen=True)
class VideoCriteriaTask:
    """Intent to what one would have to see."""

    brief: Brief


@dataclass(frozen=True)
class Footage:
    """Pictures of an episode, by their keys in the artifact store, and how they were taken.

    :param pages: numbered grids of the frames, in order.
    :param times: seconds of the episode, one for each frame.
    :param dialect: how a model is shown them; the agent's choice by the model.
    """

    pages: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    clip: str = ""
    times: tuple[float, ...] = ()
    fps: float = 0.0
    start: float = 0.0
    end: float = 0.0
    episode_seconds: float = 0.0
    motion_trail: bool = False
    overlay: bool = False
    dialect: Dialect = "grid"


@dataclass(frozen=True)
class VideoJudgeTask:
    """Pictures to scores, by several independent votes."""

    brief: Brief
    criteria: tuple[VisualCriterion, ...]
    footage: Footage
    votes: int = 3


@dataclass(frozen=True)
class VideoQuestionTask:
    """Pictures and a question to an answer."""

    brief: Brief
    footage: Footage
    question: str


@dataclass(frozen=True)
class SynthesiserTask:
    """A code judge's and a video judge's verdict, which differ, to one."""

    brief: Brief
    code_score: float
    code_criteria: Mapping[str, float]
    code_evidence: Mapping[str, float]
    judge_source: str
    video_score: float
    visual_scores: tuple[VisualScore, ...]
    video_spread: float = 0.0
    episode_seconds: float = 0.0


LookingTask = VideoJudgeTask | VideoQuestionTask
AnyTask = RoleTask | CodeReviewerTask | VideoCriteriaTask | LookingTask | SynthesiserTask


@dataclass(frozen=True)
class ElicitorResult:
    """Criteria, and what the intent leaves open."""

    criteria: tuple[Criterion, ...]
    questions: tuple[str, ...] = ()


@dataclass(frozen=True)
class RewardProposal:
    """A reward's Python source and why it is as it is."""

    source: str
    reasoning: str


@dataclass(frozen=True)
class JudgeProposal:
    """A judge's Python source and the null controls that it must fail."""

    source: str
    null_controls: tuple[str, ...]
    reasoning: str
    null_controls_reasoning: str = ""


@dataclass(frozen=True)
class FixedCode:
    """Repaired Python source and what was changed."""

    source: str
    explanation: str


@dataclass(frozen=True)
class Revision:
    """A revised reward; ``based_on`` is the number of an iteration, 0 for the latest."""

    diagnosis: str
    lesson: str
    planned_change: str
    source: str
    based_on: int = 0
    hyperparameters: Mapping[str, HyperparameterValue] = field(default_factory=dict)
    hyperparameter_reasoning: str = ""
    lesson_tier: str = ""
    lesson_updates: tuple[LessonUpdate, ...] = ()
    addressed_notes: tuple[str, ...] = ()
    structural_rewrite: bool = False


@dataclass(frozen=True)
class LessonUpdate:
    """A change of a lesson's tier."""

    number: int
    tier: str
    reason: str


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with code; ``line`` counts from 1, 0 for none in particular."""

    kind: str
    severity: str
    line: int
    message: str


@dataclass(frozen=True)
class Review:
    """What a reviewer found; ``source`` is the corrected module, empty when approved."""

    approved: bool
    findings: tuple[Finding, ...] = ()
    source: str = ""
    summary: str = ""


@dataclass(frozen=True)
class VideoCriteria:
    """What one would have to see."""

    criteria: tuple[VisualCriterion, ...]


@dataclass(frozen=True)
class Ballot:
    """One vote: a status and what was seen for each criterion, in the task's order."""

    statuses: tuple[str, ...]
    seen: tuple[str, ...]
    diagnosis: str = ""


@dataclass(frozen=True)
class VisualScore:
    """A visual criterion's score, the mean over the votes.

    :param statuses: ``met``, ``partly`` or ``not_met``, one for each vote.
    """

    criterion: VisualCriterion
    score: float
    statuses: tuple[str, ...] = ()
    seen: str = ""


@dataclass(frozen=True)
class VideoVerdict:
    """What the votes make of the pictures; ``spread`` is the standard deviation of the votes' scores."""

    score: float
    spread: float
    votes: tuple[float, ...]
    criteria: tuple[VisualScore, ...]
    diagnosis: str = ""
    dialect: str = ""


@dataclass(frozen=True)
class VideoAnswer:
    """An answer to a question on pictures; ``certain``: they show enough to answer."""

    answer: str
    certain: bool = True


@dataclass(frozen=True)
class SettledCriterion:
    """A criterion on which the last word is spoken; ``source`` is ``code`` or ``video``."""

    name: str
    source: str
    status: str
    evidence: str


@dataclass(frozen=True)
class Synthesis:
    """One verdict of two; ``decided_by`` is ``code``, ``video`` or ``both``."""

    score: float
    decided_by: str
    criteria: tuple[SettledCriterion, ...]
    reasoning: str


RoleResult = ElicitorResult | RewardProposal | JudgeProposal | FixedCode | Revision
AnyResult = RoleResult | Review | VideoCriteria | Ballot | VideoVerdict | VideoAnswer | Synthesis

NULL_CONTROLS = ("random", "untrained", "motionless", "time_reversed")
"""Kinds of trajectories that a judge may be asked to fail."""

FINDING_KINDS = (
    "reward_hacking", "sign", "frame", "dead_term", "physics_exploit", "fighting_terms", "threshold", "memory", "other",
)  # fmt: skip
"""What a reviewer looks for."""

LESSON_TIERS = ("HARD", "STRONG", "SOFT")
RETIRED = "RETIRED"
