"""The proposal of a later iteration: a person's reward, or the reviser's, with its place in the lineage and its configs."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator.database import sessions
from dressage_orchestrator.methods import authoring, configs, history, suggestions
from dressage_orchestrator.methods.authoring import USER, Code
from dressage_orchestrator.methods.steering import Directions
from dressage_orchestrator.workflow import lessons, signs, tools
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.outcome import Exhausted
from dressage_orchestrator.workflow.tools import History

_HISTORY = 6
_CHANGES = 30


def directed(flow: Flow, number: int, told: Directions) -> Code:
    """The reward that a person gave for iteration ``number``."""

    def keep() -> None:
        with flow.engine.database.begin() as tx:
            past = history.read(tx, flow, number)
            parent = _parent(past, told.rebase)

            def record(iteration: v1.Iteration) -> None:
                iteration.author = USER
                iteration.planned_change = "a person's reward"
                iteration.notes[:] = told.notes
                del iteration.reward.configs[:]
                if parent is None:
                    iteration.reward.configs.extend(configs.first_configs(flow.spec))
                    return
                iteration.parent = parent.name
                iteration.reward.configs.extend(configs.next_configs(flow.spec, parent, None))

            sessions.put_iteration(tx, flow.session, number, record)

    flow.step(f"directed:{number}", keep)
    return Code(told.reward, USER)


def revised(flow: Flow, number: int, told: Directions) -> Code:
    """The reviser's proposal for iteration ``number``.

    :raises Exhausted: when it knows nothing better.
    """
    task: agent_pb.Task | None = None
    if flow.complete:
        # A step of its own, like the notes: what the reviser is asked must not change between a crash and the repetition.
        task = flow.message_step(f"brief:{number}", agent_pb.Task, lambda: _task(flow, number, told))

    def revise() -> Json:
        with flow.engine.database.begin() as tx:
            past = history.read(tx, flow, number)
        try:
            result = authoring.converse(flow, task or _task(flow, number, told), number, tools.history_tools(past))
        except FailedPrecondition as error:
            if error.reason != authoring.NO_REVISION_REASON:
                raise
            raise Exhausted(f"no better reward is known: {error.message}") from error
        return _keep(flow, number, past, told, result)

    made = flow.step(f"revise:{number}", revise)
    return Code(made["source"], made["author"])


def _parent(past: History, rebase: int) -> v1.Iteration | None:
    """The iteration that a person chose to start from, else the latest; None before the first."""
    chosen = [entry for entry in past.iterations if entry.number == rebase] or list(past.iterations[-1:])
    return chosen[0] if chosen else None


def _shown(past: History, rebase: int) -> list[v1.Iteration]:
    """The iterations that the reviser is shown, the one to start from last."""
    chosen = _parent(past, rebase)
    others = [entry for entry in past.iterations if chosen is None or entry.number != chosen.number]
    return [*others[-(_HISTORY - 1) :], *([chosen] if chosen is not None else [])]


def _task(flow: Flow, number: int, told: Directions) -> agent_pb.Task:
    with flow.engine.database.begin() as tx:
        past = history.read(tx, flow, number)
    shown = _shown(past, told.rebase)
    held = lessons.in_force(past.iterations)
    notes = list(told.notes)
    if told.rebase:
        notes.append(f"Start from iteration {told.rebase}, not from a later one.")
    reviser = agent_pb.ReviserTask(
        brief=authoring.brief(flow),
        history=shown,
        notes=notes,
        lessons=[f"{entry.tier_name}: {entry.text}" for entry in held],
        known_lessons=[
            agent_pb.KnownLesson(number=e.number, tier=e.tier_name, text=e.text, iteration=e.support[-1]) for e in held
        ],
        tried_changes=tools.change_lines(past)[-_CHANGES:],
        best_iteration=tools.number_of(past.best),
        tune_hyperparameters=flow.spec.reward.tune_hyperparameters,
        algorithm=flow.spec.reward.algorithm,
        iterations_without_improvement=signs.without_best(past.iterations),
    )
    reviser.dynamics = _dynamics(past, shown)
    return agent_pb.Task(key=authoring.key_of(flow, f"iterations/{number}/reviser"), reviser=reviser)


def _dynamics(past: History, shown: Sequence[v1.Iteration]) -> str:
    latest = shown[-1]
    warnings = [f"warning {entry}" for entry in latest.warnings]
    return "\n".join([tools.dynamics(past.trained(latest.number)), *warnings])


def _keep(flow: Flow, number: int, past: History, told: Directions, result: agent_pb.TaskResult) -> Json:
    revision = result.revision
    by_number = {entry.number: entry for entry in past.iterations}
    parent = by_number.get(told.rebase or revision.based_on, past.iterations[-1])
    suggested, clamped = suggestions.clamp(revision.hyperparameters, algorithm=flow.spec.reward.algorithm)
    proposed = suggested if revision.HasField("hyperparameters") else None
    chosen = configs.next_configs(flow.spec, parent, proposed)
    tuned = any(config.id == configs.PROPOSED for config in chosen)
    unchanged = not revision.source.strip() or revision.source == parent.reward.source
    stuck = signs.without_best(past.iterations) >= signs.STUCK_AFTER

    def keep(iteration: v1.Iteration) -> None:
        iteration.parent, iteration.author = parent.name, result.model
        iteration.diagnosis, iteration.lesson = revision.diagnosis, revision.lesson
        iteration.planned_change, iteration.lesson_tier = revision.planned_change, revision.lesson_tier
        iteration.notes[:] = told.notes
        iteration.heeded_notes[:] = revision.heeded_notes
        iteration.structural_rewrite = stuck or revision.structural_rewrite
        iteration.reward.hyperparameter_reasoning = revision.hyperparameter_reasoning if tuned else ""
        del iteration.lesson_updates[:]
        for update in revision.lesson_updates:
            iteration.lesson_updates.add(number=update.number, tier=update.tier, reason=update.reason)
        del iteration.reward.configs[:]
        iteration.reward.configs.extend(chosen)

    with flow.engine.database.begin() as tx:
        sessions.put_iteration(tx, flow.session, number, keep)
        if flow.spec.reward.tune_hyperparameters and clamped and flow.once(tx, f"warning/clamped:{number}"):
            message = suggestions.told(clamped)
            flow.emit(tx, ev.Event(warning=ev.Warning(reason="SUGGESTION_CLAMPED", message=message)), iteration=number)
    if unchanged and not tuned:
        raise Exhausted(f"no better reward is known: {revision.diagnosis or 'the reviser changed nothing'}")
    return {"source": parent.reward.source if unchanged else revision.source, "author": result.model}
