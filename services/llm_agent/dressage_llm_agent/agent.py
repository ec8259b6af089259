"""Performs tasks: by the template author, or in a conversation with a language model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.artifacts.store import ArtifactStore
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, ResourceExhausted
from google.protobuf.message import Message as Protobuf

from dressage_llm_agent.attachments import AttachmentLoader
from dressage_llm_agent.conversation import Conversation, Options, Progress, ToolCaller
from dressage_llm_agent.costs import Ledger, is_bounded
from dressage_llm_agent.journal import Journal, NoJournal, StoreJournal
from dressage_llm_agent.metrics import LlmMetrics
from dressage_llm_agent.provider.base import CompletionRequest, ModelDescription, Provider, Reply
from dressage_llm_agent.provider.litellm_provider import count_tokens
from dressage_llm_agent.provider.redaction import Redactor
from dressage_llm_agent.provider.vision import Dialect, Vision
from dressage_llm_agent.purchases import Purchases
from dressage_llm_agent.recorded import PREFIX as RECORDED
from dressage_llm_agent.recorded import RecordedJournal, Recordings
from dressage_llm_agent.roles.base import Role, Vote
from dressage_llm_agent.roles.registry import role_of, role_task
from dressage_llm_agent.roles.video_judge import combine
from dressage_llm_agent.template import MODEL as TEMPLATE
from dressage_llm_agent.template import author

DEFAULT_VOTES = 3


@dataclass(frozen=True)
class Limits:
    """Limits of the service."""

    task_seconds: float = 7200.0
    concurrent_requests: int = 8
    concurrent_tasks: int = 64


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of requests; ``thinking`` is the reasoning effort by role."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking: Mapping[str, str] = field(default_factory=dict)


class Agent:
    """Performs tasks.

    :param store: the store of the journal; None: replies are not journalled.
    :param recordings: the recordings behind models named ``recorded/…``.
    :param now: returns the current time, UTC.
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
        self._provider = _LimitedProvider(provider, self._limits.concurrent_requests)
        self._store = store
        self._attachments = AttachmentLoader(store)
        self._vision = vision or Vision()
        self._recordings = recordings or Recordings()
        self._default_model = default_model
        self._redactor = redactor
        self._metrics = metrics
        self._now = now
        self._tasks = 0
        self._purchases = Purchases()

    def model(self, name: str) -> str:
        """Return the name of a model, or of the default model for an empty name."""
        return name or self._default_model

    async def answer(
        self, task: agent_pb.Task, *, caller: ToolCaller, progress: Progress, ledger: Ledger | None = None
    ) -> Protobuf:
        """Perform a task.

        :param task: replies are journalled only if it names a session.
        :param ledger: adds up the cost, so that the caller has the cost of a failed task as well.
        :raises DressageError: see `author.answer` and `Conversation.run`; also ``LLM_AGENT_BUSY``, ``LLM_TASK_TIMEOUT``,
            ``TEMPLATE_NO_SUCH_ROLE``, ``NO_RECORDED_PROGRAMS``, ``RECORDED_PROGRAMS_ENDED`` and ``LLM_NO_VISION_SUPPORT``.
        """
        inner, model = role_task(task), self.model(task.model)
        role = role_of(inner)
        if model == TEMPLATE:
            if not isinstance(inner, author.TemplateTask):
                message = f"{TEMPLATE} does not support the role {role.name}; {role.template_remedy}"
                raise FailedPrecondition(message, reason="TEMPLATE_NO_SUCH_ROLE", metadata={"role": role.name})
            # In a thread: it computes, and the event loop serves all conversations.
            return await asyncio.to_thread(author.answer, inner)
        card = load_card(inner.brief.environment) if role.has_card else None
        if role.sees_frames:
            role = role_of(inner, dialect=await self._dialect(model, task.api_base))
        converse = partial(self._conversation, task, role, caller=caller, progress=progress, ledger=ledger or Ledger())
        async with self._task_slot():
            try:
                async with asyncio.timeout(self._limits.task_seconds):
                    if isinstance(inner, agent_pb.VideoJudgeTask):
                        assert card is not None
                        one_by_one = is_bounded(task.remaining_budget)
                        return combine(inner, await _votes(inner, card, converse, one_by_one=one_by_one), role.dialect)
                    result = await converse().run(inner, card)
                    assert not isinstance(result, Vote)
                    if isinstance(result, agent_pb.ProposedParameters):
                        # Counted here: a reply is parsed without its model.
                        result.evidence_tokens = await asyncio.to_thread(count_tokens, inner.evidence, model=model)
                    return result
            except TimeoutError:
                message = f"the task of {role.name} did not end within {self._limits.task_seconds:g} s"
                raise DeadlineExceeded(message, reason="LLM_TASK_TIMEOUT") from None

    async def drain(self, seconds: float) -> None:
        """Wait so long for requests to providers that are on their way, whose callers are gone."""
        await self._purchases.drain(seconds)

    async def describe(self, model: str, api_base: str = "") -> ModelDescription:
        """Describe a model; the default model for an empty name."""
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
        return await self._provider.describe(name, api_base)

    async def _dialect(self, model: str, api_base: str) -> Dialect:
        """How the model is sent frames.

        :raises FailedPrecondition: ``LLM_NO_VISION_SUPPORT``.
        """
        described = await self._provider.describe(model, api_base)
        if not described.supports_images:
            message = (
                f"model: {model} does not support vision; expected a vision model. If it supports images, add it to "
                "DRESSAGE_LLM_AGENT_VISION_MODELS"
            )
            raise FailedPrecondition(message, reason="LLM_NO_VISION_SUPPORT", metadata={"model": model})
        return self._vision.dialect(model, supports_video=described.supports_video)

    def _conversation(
        self,
        task: agent_pb.Task,
        role: Role[Any],
        *,
        caller: ToolCaller,
        progress: Progress,
        ledger: Ledger,
        sample: int = 0,
    ) -> Conversation:
        model = self.model(task.model)
        options = Options(
            model=model,
            max_output_tokens=self._sampling.max_output_tokens,
            temperature=role.temperature if self._sampling.temperature is None else self._sampling.temperature,
            thinking=task.thinking or self._sampling.thinking.get(role.name, ""),
            budget=task.remaining_budget,
            sample=sample,
            api_base=task.api_base,
        )
        return Conversation(
            role=role,
            options=options,
            provider=self._provider,
            journal=self._journal(task, model=model, role=role),
            caller=caller,
            progress=progress,
            metrics=self._metrics,
            load=self._attachments.load,
            ledger=ledger,
            purchases=self._purchases,
        )

    def _journal(self, task: agent_pb.Task, *, model: str, role: Role[Any]) -> Journal:
        journal = self._session_journal(task.session, task.key)
        if not model.startswith(RECORDED):
            return journal
        return RecordedJournal(journal, self._recordings.open(model), key=task.key, role=role)

    def _session_journal(self, session: str, key: str) -> Journal:
        if not session or self._store is None:
            return NoJournal()
        if not session.startswith("sessions/"):
            raise InvalidArgument(field="session", value=session, expected="sessions/{session}")
        return StoreJournal(self._store, session=session, key=key, redactor=self._redactor, now=self._now)

    @asynccontextmanager
    async def _task_slot(self) -> AsyncIterator[None]:
        """A slot of the bounded number of concurrent tasks; a task without one is refused, not queued."""
        if self._tasks >= self._limits.concurrent_tasks:
            message = f"{self._tasks} tasks are running, the limit of this server; try again later"
            raise ResourceExhausted(message, reason="LLM_AGENT_BUSY")
        self._tasks += 1
        try:
            yield
        finally:
            self._tasks -= 1


async def _votes(
    task: agent_pb.VideoJudgeTask, card: EnvironmentCard, converse: Callable[..., Conversation], *, one_by_one: bool
) -> list[Vote]:
    """The votes of independent conversations on one task.

    :param one_by_one: check the budget between votes; otherwise all votes are requested at once.
    """
    samples = range(task.votes or DEFAULT_VOTES)
    replies: list[Protobuf | Vote | BaseException]
    if one_by_one:
        replies = [await converse(sample=sample).run(task, card) for sample in samples]
    else:
        # All are awaited even if one fails: a running request is paid for, and its reply belongs in the journal.
        runs = [converse(sample=sample).run(task, card) for sample in samples]
        replies = await asyncio.gather(*runs, return_exceptions=True)
    votes = []
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
        assert isinstance(reply, Vote)
        votes.append(reply)
    return votes


class _LimitedProvider:
    """A provider with a limit of concurrent requests."""

    def __init__(self, inner: Provider, limit: int) -> None:
        self._inner = inner
        self._slots = asyncio.Semaphore(limit)

    async def complete(self, request: CompletionRequest) -> Reply:
        async with self._slots:
            return await self._inner.complete(request)

    async def describe(self, model: str, api_base: str = "") -> ModelDescription:
        return await self._inner.describe(model, api_base)
