"""Messages to plain values and back."""

from __future__ import annotations

from collections.abc import Mapping

from dressage.api.internal.v1 import agent_service_pb2 as agent
from dressage.api.v1 import session_pb2
from dressage.errors import InvalidArgument

from dressage_llm_agent import translate_video
from dressage_llm_agent.costs import Allowance, Ledger
from dressage_llm_agent.provider.base import ModelDescription
from dressage_llm_agent.tasks import (
    AnyResult,
    AnyTask,
    Brief,
    CodeReviewerTask,
    Criterion,
    ElicitorResult,
    ElicitorTask,
    Failure,
    FixedCode,
    FixerTask,
    HyperparameterValue,
    JudgeAuthorTask,
    JudgeProposal,
    KnownLesson,
    PastIteration,
    Review,
    ReviserTask,
    Revision,
    RewardAuthorTask,
    RewardProposal,
    Subject,
)


def to_task(message: agent.Task) -> AnyTask:
    """The role's task.

    :raises InvalidArgument: where a role's input is none that there is.
    """
    match message.WhichOneof("role"):
        case "elicitor":
            return ElicitorTask(brief_of(message.elicitor.brief))
        case "reward_author":
            return RewardAuthorTask(brief_of(message.reward_author.brief))
        case "judge_author":
            return JudgeAuthorTask(brief_of(message.judge_author.brief), message.judge_author.pass_threshold)
        case "fixer":
            return _fixer(message.fixer)
        case "reviser":
            return _reviser(message.reviser)
        case "code_reviewer":
            return _reviewer(message.code_reviewer)
        case "video_criteria" | "video_judge" | "video_question" | "synthesiser" as role:
            return translate_video.to_task(role, message, brief_of)
    raise InvalidArgument(field="role", value=None, expected="one of the roles")


def to_allowance(budget: session_pb2.Budget) -> Allowance:
    """What may be spent; 0 tokens means no bound, and so does no dollars."""
    return Allowance(budget.tokens or None, budget.dollars if budget.HasField("dollars") else None)


def from_ledger(ledger: Ledger) -> session_pb2.Cost:
    """The cost; dollars stay unset where a price is unknown."""
    cost = session_pb2.Cost(
        requests=ledger.requests, input_tokens=ledger.input_tokens, output_tokens=ledger.output_tokens
    )
    if ledger.dollars is not None:
        cost.dollars = ledger.dollars
    return cost


def from_result(result: AnyResult, *, ledger: Ledger, model: str) -> agent.TaskResult:
    """The last message of a conversation."""
    message = agent.TaskResult(cost=from_ledger(ledger), model=model, journal_hits=ledger.journal_hits)
    match result:
        case ElicitorResult():
            message.elicitor.criteria.extend(_criterion(criterion) for criterion in result.criteria)
            message.elicitor.questions.extend(result.questions)
            message.elicitor.SetInParent()
        case RewardProposal():
            message.reward.CopyFrom(agent.RewardProposal(source=result.source, reasoning=result.reasoning))
        case JudgeProposal():
            message.judge.CopyFrom(
                agent.JudgeProposal(
                    source=result.source,
                    null_controls=result.null_controls,
                    reasoning=result.reasoning,
                    null_controls_reasoning=result.null_controls_reasoning,
                )
            )
        case FixedCode():
            message.fixed.CopyFrom(agent.FixedCode(source=result.source, explanation=result.explanation))
        case Revision():
            message.revision.CopyFrom(_revision(result))
        case Review():
            message.review.CopyFrom(_review(result))
        case _:
            translate_video.put_result(message, result)
    return message


def from_description(description: ModelDescription) -> agent.DescribeModelResponse:
    """What is known of a model; prices stay unset where unknown."""
    message = agent.DescribeModelResponse(
        model=description.model,
        language_model=description.language_model,
        configured=description.configured,
        problem=description.problem,
        supports_images=description.supports_images,
        supports_video=description.supports_video,
    )
    if description.input_dollars_per_million is not None:
        message.input_dollars_per_million = description.input_dollars_per_million
    if description.output_dollars_per_million is not None:
        message.output_dollars_per_million = description.output_dollars_per_million
    return message


def brief_of(message: agent.Brief) -> Brief:
    """What every author needs to know."""
    criteria = tuple(Criterion(c.title, c.description, c.category, c.default_on) for c in message.criteria)
    return Brief(message.intent, message.environment.removeprefix("environments/"), criteria)


def _criterion(criterion: Criterion) -> session_pb2.IntentCriterion:
    return session_pb2.IntentCriterion(
        title=criterion.title,
        description=criterion.description,
        category=criterion.category,
        default_on=criterion.default_on,
    )


def _fixer(message: agent.FixerTask) -> FixerTask:
    failures = tuple(Failure(f.rule, f.line, f.message, f.seen) for f in message.failures)
    return FixerTask(
        brief_of(message.brief),
        _subject(message.subject, "fixer"),
        message.source,
        failures,
        message.round,
        tuple(message.earlier_explanations),
    )


def _reviewer(message: agent.CodeReviewerTask) -> CodeReviewerTask:
    return CodeReviewerTask(
        brief_of(message.brief),
        _subject(message.subject, "code_reviewer"),
        message.source,
        message.round,
        tuple(message.earlier_findings),
        message.pass_threshold,
    )


def _subject(value: str, role: str) -> Subject:
    if value == "reward":
        return "reward"
    if value == "judge":
        return "judge"
    raise InvalidArgument(field=f"{role}.subject", value=value, expected="'reward' or 'judge'")


def _review(review: Review) -> agent.Review:
    findings = [
        agent.ReviewFinding(kind=each.kind, severity=each.severity, line=each.line, message=each.message)
        for each in review.findings
    ]
    return agent.Review(approved=review.approved, findings=findings, source=review.source, summary=review.summary)


def _reviser(message: agent.ReviserTask) -> ReviserTask:
    return ReviserTask(
        brief=brief_of(message.brief),
        history=tuple(_iteration(iteration) for iteration in message.history),
        notes=tuple(message.notes),
        lessons=tuple(message.lessons),
        tune_hyperparameters=message.tune_hyperparameters,
        algorithm=message.algorithm or "ppo",
        iterations_without_improvement=message.iterations_without_improvement,
        dynamics=message.dynamics,
        known_lessons=tuple(KnownLesson(k.number, k.tier, k.text, k.iteration) for k in message.known_lessons),
        tried_changes=tuple(message.tried_changes),
        best_iteration=message.best_iteration,
    )


def _iteration(message: session_pb2.Iteration) -> PastIteration:
    judged = message.HasField("judgment")
    config = next((config for config in message.reward.configs if config.id == message.reward.best_config), None)
    return PastIteration(
        number=message.number,
        source=message.reward.source,
        score=message.judgment.score if judged else None,
        scores={criterion.name: criterion.score for criterion in message.judgment.criteria},
        diagnosis=message.judgment.diagnosis,
        failure_tags=tuple(message.judgment.failure_tags),
        planned_change=message.planned_change,
        lesson=message.lesson,
        warnings=tuple(message.warnings),
        hyperparameters={} if config is None else _read_hyperparameters(config.hyperparameters),
    )


def _revision(revision: Revision) -> agent.Revision:
    message = agent.Revision(
        diagnosis=revision.diagnosis,
        lesson=revision.lesson,
        based_on=revision.based_on,
        planned_change=revision.planned_change,
        source=revision.source,
        hyperparameter_reasoning=revision.hyperparameter_reasoning,
        lesson_tier=revision.lesson_tier,
        lesson_updates=[
            agent.LessonUpdate(number=u.number, tier=u.tier, reason=u.reason) for u in revision.lesson_updates
        ],
        addressed_notes=revision.addressed_notes,
        structural_rewrite=revision.structural_rewrite,
    )
    if revision.hyperparameters:
        message.hyperparameters.CopyFrom(_write_hyperparameters(revision.hyperparameters))
    return message


def _read_hyperparameters(message: session_pb2.Hyperparameters) -> dict[str, HyperparameterValue]:
    """The fields that are set, by name."""
    values: dict[str, HyperparameterValue] = {}
    for descriptor, value in message.ListFields():
        values[descriptor.name] = tuple(value) if descriptor.name == "hidden_sizes" else value
    return values


def _write_hyperparameters(values: Mapping[str, HyperparameterValue]) -> session_pb2.Hyperparameters:
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return session_pb2.Hyperparameters(**plain)  # type: ignore[arg-type]
