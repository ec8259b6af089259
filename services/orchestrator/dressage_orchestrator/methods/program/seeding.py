"""Programs that a model or a recording writes: the starts of a search, or a round of revisions.

Replies are requested together and journalled by llm-agent. They are one step, so that a crash between two replies repeats the
same requests, which the journal answers: none is bought twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.errors import DressageError, InvalidArgument
from dressage.programs.engine.trees import flatten
from dressage.programs.families import ProgramTask

from dressage_orchestrator.lifecycle import outages
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import NO_PROGRAMS, NO_REPLY, is_lost, key_of, replies
from dressage_orchestrator.methods.program import spec

_WAVES = 3
"""Requests for replies, at most: a later one replaces replies without a program."""

RequestOf = Callable[[agent_pb.Task, int], None]
"""Sets the role of a task for the number of a reply, from 0."""


@dataclass(frozen=True)
class SeedPrograms:
    """The programs of a model's replies.

    :param programs: one of each reply that contains one, in their order; a program may occur several times.
    :param model: the model that replied; empty: there is no usable reply.
    :param problem: why there are no programs; empty if there are.
    """

    programs: tuple[str, ...]
    model: str = ""
    problem: str = ""

    @property
    def distinct(self) -> tuple[str, ...]:
        """The different programs, in their order."""
        return tuple(dict.fromkeys(self.programs))


def collect(context: SessionContext, number: int, role: str, request_of: RequestOf) -> SeedPrograms:
    """Request programs until there are `seed_programs`, or no further reply has one.

    :raises Exhausted: when a budget is exhausted before the first reply.
    :raises DressageError: when the model cannot be asked, for example for a rejected key.
    """
    settings = context.spec.program
    needed, programs, first = settings.seed_programs, list[Json](), 0
    model = provenance = problem = ""
    requested, lost = settings.replies, 0
    for wave in range(1, _WAVES + 1):
        state = context.step(
            f"programs:{number}:{wave}",
            lambda first=first, count=requested: _wave(context, number, role, request_of, range(first, first + count)),  # type: ignore[misc]
        )
        first += requested
        programs += state["programs"]
        lost += state["lost"]
        model, provenance = model or state["model"], provenance or state["provenance"]
        problem = problem or state["problem"]
        requested = spec.replies_for(needed - len(programs))
        if requested <= 0 or state["ended"] or not state["programs"]:
            break
    collected = SeedPrograms(
        tuple(programs[:needed]), model, "" if programs else problem or "no reply contained a program"
    )

    def emit() -> None:
        message = ev.ProgramsCollected(
            requested=first,
            usable=len(programs),
            kept=len(collected.programs),
            distinct=len(collected.distinct),
            model=model,
            provenance=provenance,
        )
        context.store.emit(ev.Event(programs_collected=message), iteration=number, key=f"programs/{number}")
        if lost:
            text = f"{lost} of {first} replies failed, so that another run may begin with other programs: {problem}"
            context.store.warn("REPLIES_LOST", text, iteration=number, key=f"lost/{number}")

    if programs:
        context.step(f"programs:{number}", emit)
    return collected


def _wave(context: SessionContext, number: int, role: str, request_of: RequestOf, numbers: range) -> Json:
    requests = []
    for reply in numbers:
        request = agent_pb.Task(key=key_of(context, f"iterations/{number}/{role}/{reply}"))
        request_of(request, reply)
        requests.append(request)
    answers = replies(context, number, requests)
    task, programs = spec.task_of(context.spec), []
    texts_of = _texts(context, number, task, answers)
    for reply, texts in zip(numbers, texts_of, strict=True):
        # One of a reply, chosen as the published experiment does: at random, here the same in each repetition.
        usable = [text for text in texts if _runs(task, text)]
        if usable:
            programs.append(random.Random(f"{context.spec.seed}/{number}/{reply}").choice(usable))
    results = [answer for answer in answers if isinstance(answer, agent_pb.TaskResult)]
    errors = [answer for answer in answers if isinstance(answer, DressageError)]
    return {
        "programs": programs,
        "model": results[0].model if results else "",
        "provenance": results[0].programs.provenance if results else "",
        "problem": next((error.message for error in sorted(errors, key=is_lost, reverse=True)), ""),
        "ended": any(error.reason in NO_PROGRAMS | NO_REPLY for error in errors),
        "lost": sum(map(is_lost, answers)),
    }


def _texts(
    context: SessionContext, number: int, task: ProgramTask, answers: Sequence[agent_pb.TaskResult | DressageError]
) -> list[Sequence[str]]:
    """Return the programs of each answer. Where a plug-in reads replies, judge runs its code on all of them."""
    results = [
        answer.programs if isinstance(answer, agent_pb.TaskResult) else agent_pb.Programs() for answer in answers
    ]
    replied = [result.reply for result in results if result.reply]
    if not replied:
        return [list(result.programs) for result in results]
    request = judge_pb.ReadRepliesRequest(environment=task.environment, replies=replied)
    replies = iter(outages.call(context, number, lambda: context.engine.judge.read_replies(request)).replies)
    return [list(next(replies).programs) if result.reply else [] for result in results]


def _runs(task: ProgramTask, text: str) -> bool:
    """Return whether the engine can run a program."""
    try:
        flatten(task.parse(text), task.language)
    except InvalidArgument:
        return False
    return True


def parse_text(task: ProgramTask, text: str, *, field: str) -> tuple[str, ...]:
    """Return a person's programs: one a line; empty lines and lines that begin with ``#`` are left out.

    :raises InvalidArgument: naming the line that is no program, or if there is none.
    """
    programs = []
    for line, row in enumerate(text.splitlines(), start=1):
        row = row.strip()
        if row and not row.startswith("#"):
            try:
                program = task.canonical(row)
                flatten(task.parse(program), task.language)
            except InvalidArgument as error:
                message = f"{field}: line {line} is no program: {error.message}"
                raise InvalidArgument(message, field=field, reason="PROGRAM_INVALID") from error
            programs.append(program)
    if not programs:
        raise InvalidArgument(field=field, value=text[:60], expected="at least one program, one a line")
    return tuple(programs)


def as_text(programs: Sequence[str], *, search: str) -> str:
    """Return programs as a person reads and edits them."""
    return "\n".join(programs) if programs else f"# {search} from random programs"
