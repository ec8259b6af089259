"""Who answers a task: the template author at once, or a language model in a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from dressage.artifacts.store import ArtifactStore
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, ResourceExhausted

from dressage_llm_agent.conversation import Conversation, Options, Outcome, Progress, ToolCaller
from dressage_llm_agent.costs import Allowance, Ledger
from dressage_llm_agent.footage import PictureLoader
from dressage_llm_agent.journal import Journal, NoJournal, StoreJournal
from dressage_llm_agent.metrics import LlmMetrics
from dressage_llm_agent.provider.base import CompletionRequest, ModelDescription, Provider, Reply
from dressage_llm_agent.provider.redaction import Redactor
from dressage_llm_agent.provider.vision import Vision
from dressage_llm_agent.recorded import PREFIX as RECORDED
from dressage_llm_agent.recorded import RecordedJournal, Recordings
from dressage_llm_agent.roles.registry import role_of
from dressage_llm_agent.roles.video_judge.role import combine
from dressage_llm_agent.tasks import AnyTask, Ballot, LookingTask, RoleTask, VideoJudgeTask
from dressage_llm_agent.template import MODEL as TEMPLATE
from dressage_llm_agent.template import author


@dataclass(frozen=True)
class Limits:
    """Bounds of the service."""

    task_seconds: float = 1800.0
    concurrent_requests: int = 8
    concurrent_tasks: int = 64


@dataclass(frozen=True)
class Sampling:
    """How models are asked."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking: Mapping[str, str] = field(default_factory=dict)


class Agent:
    """Answers tasks.

    :param store: where replies are journalled; None: nowhere.
    :param recordings: what models named ``recorded/…`` stand for.
    :param now: the present time, UTC.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        store: ArtifactStore | None,
        default_model: str,
        redactor: Redactor,
        metrics: LlmMetrics,
        now: Callable[[], datetime],
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        vision: Vision | None = None,
        recordings: Recordings | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._sampling = sampling or Sampling()
        self._provider = _Gate(provider, self._limits.concurrent_requests)
        self._store = store
        self._pictures = PictureLoader(store)
        self._vision = vision or Vision()
        self._recordings = recordings or Recordings(None)
        self._default_model = default_model
        self._redactor = redactor
        self._metrics = metrics
        self._now = now
        self._tasks = 0

    def model(self, name: str) -> str:
        """The model's name, the default filled in."""
        return name or self._default_model

    async def answer(
        self,
        task: AnyTask,
        *,
        session: str,
        key: str,
        model: str,
        allowance: Allowance,
        caller: ToolCaller,
        progress: Progress,
        thinking: str = "",
        ledger: Ledger | None = None,
    ) -> Outcome:
        """The task's result and its cost.

        :param session: ``sessions/{session}``; empty outside of a session, where nothing is journalled.
        :param ledger: what is counted into, for a caller who wants to know the cost also where the task fails.
        :param thinking: effort; empty: the setting for the role.
        :raises DressageError: see `author.answer` and `Conversation.run`; ``LLM_AGENT_BUSY`` and ``LLM_TASK_TIMEOUT`` besides,
            ``TEMPLATE_NO_SUCH_ROLE`` and ``LLM_CANNOT_SEE``.
        """
        name = self.model(model)
        role = role_of(task).name
        ledger = ledger or Ledger()
        if name == TEMPLATE:
            if not isinstance(task, RoleTask):
                message = f"the built-in author plays no {role}; configure a language model for that"
                raise FailedPrecondition(message, reason="TEMPLATE_NO_SUCH_ROLE", metadata={"role": role})
            return Outcome(await asyncio.to_thread(author.answer, task), ledger)
        card = load_card(task.brief.environment)
        if isinstance(task, LookingTask):
            task = await self._shown(task, name)
        options = self._options(name, role, allowance, thinking)

        def converse(sample: int) -> Conversation:
            return Conversation(
                role=role_of(task),
                options=replace(options, sample=sample),
                provider=self._provider,
                journal=self._journal(session, key, model=name, role=role),
                caller=caller,
                progress=progress,
                metrics=self._metrics,
                load=self._pictures.load,
                ledger=ledger,
            )

        async with self._place():
            try:
                async with asyncio.timeout(self._limits.task_seconds):
                    if isinstance(task, VideoJudgeTask):
                        return await _vote(task, card, converse, ledger, one_by_one=allowance != Allowance())
                    return await converse(0).run(task, card)
            except TimeoutError:
                message = f"the task of {role} did not end within {self._limits.task_seconds:g} s"
                raise DeadlineExceeded(message, reason="LLM_TASK_TIMEOUT") from None

    async def _shown(self, task: LookingTask, model: str) -> LookingTask:
        """The task with its footage in the form that the model takes.

        :raises FailedPrecondition: ``LLM_CANNOT_SEE``.
        """
        described = await self._provider.describe(model)
        if not described.supports_images:
            message = (
                f"{model} is not known to see pictures; name a model that does, or list it in "
                "DRESSAGE_LLM_AGENT_VISION_MODELS if it does all the same"
            )
            raise FailedPrecondition(message, reason="LLM_CANNOT_SEE", metadata={"model": model})
        dialect = self._vision.dialect(model, supports_video=described.supports_video)
        return replace(task, footage=replace(task.footage, dialect=dialect))

    async def describe(self, model: str) -> ModelDescription:
        """What a model is and costs; the default if ``model`` is empty."""
        name = self.model(model)
        if name == TEMPLATE:
            return ModelDescription(
                name,
                language_model=False,
                configured=True,
                input_dollars_per_million=0.0,
                output_dollars_per_million=0.0,
            )
        if name.startswith(RECORDED):
            return await asyncio.to_thread(self._recordings.describe, name)
        return await self._provider.describe(name)

    def _options(self, model: str, role: str, allowance: Allowance, thinking: str) -> Options:
        sampling = self._sampling
        effort = thinking or sampling.thinking.get(role, "")
        return Options(model, sampling.max_output_tokens, sampling.temperature, effort, allowance)

    def _journal(self, session: str, key: str, *, model: str, role: str) -> Journal:
        own = self._own_journal(session, key)
        if not model.startswith(RECORDED):
            return own
        return RecordedJournal(own, self._recordings.open(model), key=key, role=role)

    def _own_journal(self, session: str, key: str) -> Journal:
        if not session or self._store is None:
            return NoJournal()
        if not session.startswith("sessions/"):
            raise InvalidArgument(field="session", value=session, expected="sessions/{session}")
        return StoreJournal(self._store, session=session, key=key, redactor=self._redactor, now=self._now)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """A place among the tasks at once; refused rather than queued without end."""
        if self._tasks >= self._limits.concurrent_tasks:
            message = f"{self._tasks} tasks are under way, as many as this agent takes; try again later"
            raise ResourceExhausted(message, reason="LLM_AGENT_BUSY")
        self._tasks += 1
        try:
            yield
        finally:
            self._tasks -= 1


async def _vote(
    task: VideoJudgeTask,
    card: EnvironmentCard,
    converse: Callable[[int], Conversation],
    ledger: Ledger,
    *,
    one_by_one: bool,
) -> Outcome:
    """The verdict of independent conversations on one task, which count into one ledger.

    :param one_by_one: so that a budget is held to between the votes; otherwise all are asked for at once.
    """
    outcomes: list[Outcome | BaseException]
    if one_by_one:
        outcomes = [await converse(sample).run(task, card) for sample in range(task.votes)]
    else:
        # All are awaited also when one fails: a reply that is under way is paid for, and belongs in the journal.
        asked = [converse(sample).run(task, card) for sample in range(task.votes)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    ballots = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        assert isinstance(outcome.result, Ballot)
        ballots.append(outcome.result)
    return Outcome(combine(task, ballots), ledger)


class _Gate:
    """A provider that is asked so many requests at once and no more."""

    def __init__(self, inner: Provider, places: int) -> None:
        self._inner = inner
        self._places = asyncio.Semaphore(places)

    async def complete(self, request: CompletionRequest) -> Reply:
        async with self._places:
            return await self._inner.complete(request)

    async def describe(self, model: str) -> ModelDescription:
        return await self._inner.describe(model)
