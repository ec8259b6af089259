"""The proposal of a later iteration: a person's reward, or the reviser's, with its place in the lineage and its configs.

A person may set any value that the algorithm can compute with. A language model's suggestion of hyperparameters is clamped to
the recommended range of its rule (`dressage.training.hyperparameters.RULES`), in which training behaves well, and each change
becomes a warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition
from dressage.training import sac
from dressage.training.hyperparameters import HIDDEN_SIZE, RECOMMENDED_HIDDEN_LAYERS, RULES, STEP_FACTORS

from dressage_orchestrator.lifecycle import budget, lessons
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import converse, key_of
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.reward import configs, diagnostics, history, tools, warm_starts
from dressage_orchestrator.methods.reward.code import Code, reward_brief
from dressage_orchestrator.methods.reward.history import History
from dressage_orchestrator.methods.reward.training import steps_of
from dressage_orchestrator.models import USER

NO_REVISION_REASON = "TEMPLATE_NO_REVISION"
_HISTORY = 6
_CHANGES = 30
_DIRECTED = (
    *("author", "planned_change", "notes", "parent", "reward.configs", "reward.steps_per_member"),
    "reward.warm_start",
)
_REVISED = (
    *("parent", "author", "diagnosis", "lesson", "planned_change", "lesson_tier", "notes", "addressed_notes"),
    *("structural_rewrite", "lesson_updates", "reward.hyperparameter_reasoning", "reward.configs"),
    *("reward.steps_per_member", "reward.warm_start"),
)


def directed_reward(context: SessionContext, number: int, directions: Directions) -> Code:
    """Return a person's reward for iteration ``number``."""

    def record() -> None:
        parent = _parent(history.read(context.store, number), directions.rebase)
        changes = v1.Iteration(author=USER, planned_change="a person's reward", notes=directions.notes)
        if parent is None:
            changes.reward.configs.extend(configs.first_configs(context.spec))
        else:
            changes.parent = parent.name
            changes.reward.configs.extend(configs.next_configs(context.spec, parent, None))
            changes.reward.steps_per_member = parent.reward.steps_per_member
        choice = v1.FromParent.ValueType(directions.from_parent)
        start = warm_starts.planned_start(context.spec, parent, directed=choice, proposed=False, author=USER, reason="")
        if start is not None:
            changes.reward.warm_start.CopyFrom(start)
        context.store.update_iteration(number, changes, _DIRECTED)

    context.step(f"directed:{number}", record)
    return Code(directions.proposal, USER)


def revised_reward(context: SessionContext, number: int, directions: Directions) -> Code:
    """Return the reviser's proposal for iteration ``number``.

    :raises Exhausted: when it has no better reward.
    """
    # A step of its own, like the notes: the reviser's task must not change between a crash and the repetition.
    task = context.message_step(f"brief:{number}", agent_pb.Task, lambda: _task(context, number, directions))

    def revise() -> Json:
        past = history.read(context.store, number, context.engine.store)
        try:
            result = converse(context, number, task, tools.history_tools(past))
        except FailedPrecondition as error:
            if error.reason != NO_REVISION_REASON:
                raise
            raise Exhausted(f"no better reward is known: {error.message}") from error
        return _record(context, number, past, directions, task.reviser, result)

    revision = context.step(f"revise:{number}", revise)
    return Code(revision["source"], revision["author"])


def _parent(past: History, rebase: int) -> v1.Iteration | None:
    """Return the iteration from which a person chose to start, else the latest; None before the first."""
    chosen = [entry for entry in past.iterations if entry.number == rebase] or list(past.iterations[-1:])
    return chosen[0] if chosen else None


def _prompt_iterations(past: History, rebase: int) -> list[v1.Iteration]:
    """Return the iterations for the reviser's prompt; the last is the one to start from."""
    chosen = _parent(past, rebase)
    others = [entry for entry in past.iterations if chosen is None or entry.number != chosen.number]
    return [*others[-(_HISTORY - 1) :], *([chosen] if chosen is not None else [])]


def _task(context: SessionContext, number: int, directions: Directions) -> agent_pb.Task:
    past, session = history.read(context.store, number, context.engine.store), context.store.get()
    iterations = _prompt_iterations(past, directions.rebase)
    remaining = budget.remaining_of_all_kinds(session, now=context.store.now())
    steps = steps_of(context.spec, iterations[-1])
    known_lessons = lessons.in_force(past.iterations)
    notes = list(directions.notes)
    if directions.rebase:
        notes.append(f"Start from iteration {directions.rebase}, not from a later one.")
    reviser = agent_pb.ReviserTask(
        brief=reward_brief(context, number, remaining=remaining, steps_per_member=steps),
        history=iterations,
        notes=notes,
        known_lessons=[
            agent_pb.KnownLesson(number=e.number, tier=e.tier_name, text=e.text, iteration=e.support[-1])
            for e in known_lessons
        ],
        tried_changes=tools.change_lines(past)[-_CHANGES:],
        best_iteration=tools.number_of(past.best),
        tune_hyperparameters=context.spec.reward.tune_hyperparameters,
        algorithm=context.spec.reward.algorithm,
        iterations_without_improvement=diagnostics.without_best(past.iterations),
        may_continue_from=warm_starts.start_candidates(
            context.spec, past.iterations, directed=v1.FromParent.ValueType(directions.from_parent)
        ),
    )
    reviser.dynamics = _dynamics(past, iterations)
    if context.spec.reward.tune_hyperparameters:
        members = (len(iterations[-1].reward.configs) + 1) * context.spec.reward.seeds
        reviser.lowest_steps, reviser.highest_steps = step_range(
            context.spec, members=members, remaining=remaining.env_steps
        )
    return agent_pb.Task(key=key_of(context, f"iterations/{number}/reviser"), reviser=reviser)


def _dynamics(past: History, iterations: Sequence[v1.Iteration]) -> str:
    latest = iterations[-1]
    warnings = [f"warning {entry}" for entry in latest.warnings]
    return "\n".join([tools.dynamics(past, latest.number), *warnings])


def _record(
    context: SessionContext,
    number: int,
    past: History,
    directions: Directions,
    task: agent_pb.ReviserTask,
    result: agent_pb.TaskResult,
) -> Json:
    revision, settings = result.revision, context.spec.reward
    by_number = {entry.number: entry for entry in past.iterations}
    parent = by_number.get(directions.rebase or revision.based_on, past.iterations[-1])
    suggested, clamped = clamp(revision.hyperparameters, algorithm=settings.algorithm)
    proposed = suggested if revision.HasField("hyperparameters") else None
    chosen = configs.next_configs(context.spec, parent, proposed)
    steps, changed_steps = clamp_steps(revision.steps_per_member, task, steps_of(context.spec, parent))
    clamped += changed_steps
    tuned = any(config.id == configs.PROPOSED for config in chosen) or steps != steps_of(context.spec, parent)
    unchanged = not revision.source.strip() or revision.source == parent.reward.source
    stuck = diagnostics.without_best(past.iterations) >= diagnostics.STUCK_AFTER
    changes = v1.Iteration(
        parent=parent.name,
        author=result.model,
        diagnosis=revision.diagnosis,
        lesson=revision.lesson,
        planned_change=revision.planned_change,
        lesson_tier=revision.lesson_tier,
        notes=directions.notes,
        addressed_notes=revision.addressed_notes,
        structural_rewrite=stuck or revision.structural_rewrite,
    )
    for update in revision.lesson_updates:
        changes.lesson_updates.add(number=update.number, tier=update.tier, reason=update.reason)
    changes.reward.hyperparameter_reasoning = revision.hyperparameter_reasoning if tuned else ""
    changes.reward.configs.extend(chosen)
    changes.reward.steps_per_member = 0 if steps == settings.steps_per_member else steps
    start = warm_starts.planned_start(
        context.spec,
        parent,
        directed=v1.FromParent.ValueType(directions.from_parent),
        proposed=revision.from_parent and parent.number in task.may_continue_from,
        author=result.model,
        reason=revision.start_reasoning,
    )
    if start is not None:
        changes.reward.warm_start.CopyFrom(start)
    context.store.update_iteration(number, changes, _REVISED)
    if settings.tune_hyperparameters and clamped:
        message = adjustment_message(clamped)
        context.store.warn("SUGGESTION_CLAMPED", message, iteration=number, key=f"clamped:{number}")
    if unchanged and not tuned and start is None:
        raise Exhausted(f"no better reward is known: {revision.diagnosis or 'the reviser changed nothing'}")
    return {"source": parent.reward.source if unchanged else revision.source, "author": result.model}


@dataclass(frozen=True)
class Adjustment:
    """A suggestion that was changed."""

    name: str
    suggested: float
    used: float
    """NaN: left out."""

    def __str__(self) -> str:
        return f"{self.name} {self.suggested:g} → {'left out' if math.isnan(self.used) else format(self.used, 'g')}"


def clamp(suggested: v1.Hyperparameters, *, algorithm: str = "ppo") -> tuple[v1.Hyperparameters, list[Adjustment]]:
    """Return a copy within the recommended ranges, and the changes.

    Values that are no numbers and hyperparameters that the algorithm does not have are left out.
    """
    allowed = v1.Hyperparameters()
    allowed.CopyFrom(suggested)
    changed = []
    for descriptor, value in suggested.ListFields() if algorithm == "sac" else ():
        if descriptor.name not in sac.HYPERPARAMETERS:
            allowed.ClearField(descriptor.name)  # type: ignore[arg-type]
            changed.append(Adjustment(descriptor.name, value, math.nan))
    for name, rule in RULES.items():
        if rule.recommended is None or not allowed.HasField(name):  # type: ignore[arg-type]
            continue
        low, high = rule.recommended
        value = getattr(allowed, name)
        if math.isnan(value):
            allowed.ClearField(name)  # type: ignore[arg-type]
            changed.append(Adjustment(name, value, math.nan))
            continue
        used = min(max(value, low), high)
        if used != value:
            setattr(allowed, name, type(value)(used))
            changed.append(Adjustment(name, value, used))
    return allowed, changed + _clamp_sizes(allowed)


def _clamp_sizes(allowed: v1.Hyperparameters) -> list[Adjustment]:
    """Limit the number and the sizes of hidden layers in place; return the changes."""
    assert HIDDEN_SIZE.recommended is not None
    low, high = (round(bound) for bound in HIDDEN_SIZE.recommended)
    sizes = list(allowed.hidden_sizes)
    used = [min(max(size, low), high) for size in sizes[:RECOMMENDED_HIDDEN_LAYERS]]
    allowed.hidden_sizes[:] = used
    changed = [
        Adjustment("hidden_sizes", before, after) for before, after in zip(sizes, used, strict=False) if before != after
    ]
    return changed + [Adjustment("hidden_sizes", size, math.nan) for size in sizes[RECOMMENDED_HIDDEN_LAYERS:]]


def step_range(spec: v1.SessionSpec, *, members: int, remaining: int) -> tuple[int, int]:
    """Return the lowest and the highest number of environment steps per member that a revision may choose.

    :param members: members of the next training, at most.
    :param remaining: environment steps left of the budget; 0: no limit.
    """
    low, high = (max(1, round(factor * spec.reward.steps_per_member)) for factor in STEP_FACTORS)
    if spec.reward.max_steps_per_member > spec.reward.steps_per_member:
        high = min(high, spec.reward.max_steps_per_member)
    if remaining:
        high = min(high, max(1, remaining // members))
    return min(low, high), high


def clamp_steps(suggested: int, task: agent_pb.ReviserTask, before: int) -> tuple[int, list[Adjustment]]:
    """Return the environment steps per member of a revision, within the range of its task, and the change if there is one.

    :param suggested: the revision's; 0: as before.
    """
    if not suggested or not task.highest_steps:
        return before, []
    used = min(max(suggested, task.lowest_steps), task.highest_steps)
    return used, [] if used == suggested else [Adjustment("steps_per_member", suggested, used)]


def adjustment_message(changed: list[Adjustment]) -> str:
    """Return one sentence about the changes."""
    return "the model's hyperparameter suggestions were changed to allowed values: " + ", ".join(map(str, changed))
