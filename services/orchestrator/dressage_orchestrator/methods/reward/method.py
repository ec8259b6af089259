"""Method `reward`: propose a reward → review → check → screen → train → judge → revise, and confirm on fresh seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, InvalidArgument
from dressage.sandbox.machine import Machine
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dressage_orchestrator import resource_names
from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.loop import enter
from dressage_orchestrator.lifecycle.method import (
    Deliverable,
    DeviceObstacle,
    Estimate,
    EvaluationResult,
    Method,
    Proposal,
)
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.reward import (
    authoring,
    configs,
    estimates,
    judgment,
    on_device,
    revising,
    spec,
    tools,
    training,
    warm_starts,
)
from dressage_orchestrator.methods.reward.best_policy import best_policy
from dressage_orchestrator.methods.reward.checkpoint_choice import choose_checkpoints
from dressage_orchestrator.methods.reward.code import Code, findings_line, pass_check, repair_code
from dressage_orchestrator.methods.reward.history import trainings
from dressage_orchestrator.methods.reward.screening import prescreen
from dressage_orchestrator.methods.reward.spec import chooses_checkpoints, has_code_judge
from dressage_orchestrator.models import USER

_NONE = Code("", "")
_PROPOSAL_JSON = (
    *("name", "number", "parent", "author", "diagnosis", "planned_change", "lesson", "lesson_tier", "notes"),
    *("addressed_notes", "structural_rewrite", "edited"),
)
_REWARD_JSON = ("latex", "terms", "configs", "hyperparameter_reasoning", "steps_per_member", "warm_start")


@dataclass(frozen=True)
class RewardProposal(Proposal):
    """A reward for an iteration.

    :param tries: trainings of this iteration, this one included; another follows only when a reward broke in training.
    """

    reward: Code = _NONE
    tries: int = 1

    @classmethod
    def of(cls, reward: Code, *, tries: int = 1, is_checked: bool = False) -> RewardProposal:
        """Return the proposal of a reward."""
        return cls(reward.source, reward.version, is_checked, reward, tries)


class RewardMethod(Method):
    """Rewards in Python, trained with PPO or SAC and judged by code, video or both."""

    name = "reward"
    spec_type: type[Message] = v1.RewardSpec

    def fill(self, full: v1.SessionSpec) -> None:
        """Fill in the defaults of `spec`."""
        spec.fill(full)

    def validate(self, full: v1.SessionSpec) -> None:
        """Refuse a spec that contradicts itself."""
        spec.validate(full)

    def check_machine(self, full: v1.SessionSpec, machine: Machine) -> None:
        """Refuse replay buffers that do not fit."""
        configs.check_replay_memory(full, machine)

    def refusal_to_continue(self, full: v1.SessionSpec) -> str:
        """Return why the backend and the algorithm cannot continue from a policy; empty if they can."""
        return warm_starts.refusal(full)

    def estimate(self, full: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Return the estimate of one iteration: authors, trainings and evaluations."""
        return spec.estimate(full, episode_steps=episode_steps)

    def note(self, full: v1.SessionSpec) -> str:
        """Return that most measured sessions of such an intent did not pass; empty if there is no such measurement."""
        return spec.note(full)

    def seconds(self, full: v1.SessionSpec, estimate: Estimate, *, cores: int, rate: float | None) -> float:
        """Return the expected seconds of an iteration, from a measured session or from earlier runs' speed or the preset's."""
        if estimate.measured and rate is None:
            return estimate.measured_core_seconds / max(1, cores)
        return estimates.iteration_seconds(
            full,
            env_steps=estimate.measured_env_steps if estimate.measured else estimate.env_steps,
            evaluation_env_steps=estimate.evaluation_env_steps,
            cores=cores,
            rate=rate,
        )

    async def check_edit(self, full: v1.SessionSpec, text: str, *, judge: JudgeClient) -> None:
        """Refuse a person's reward that does not pass its check."""
        environment = full.environment.removeprefix("environments/")
        report = await judge.check(judge_pb.CheckRequest(environment=environment, reward_source=text))
        if not report.ok:
            message = f"proposal_source does not pass its check: {findings_line(report.failures)}"
            raise InvalidArgument(message, field="proposal_source", reason="REWARD_REJECTED")

    async def device_obstacle(self, full: v1.SessionSpec, *, judge: JudgeClient) -> DeviceObstacle:
        """Return why the training cannot run on a device: its algorithm, its environment, or the caller's reward.

        A reward that fails its check fails in the session.
        """
        refusal = on_device.refusal(full)
        if refusal:
            return DeviceObstacle(refusal, moves=True)
        caution = DeviceObstacle(on_device.caution(full))
        if not full.reward.reward_source:
            return caution
        environment = full.environment.removeprefix("environments/")
        request = judge_pb.CheckRequest(
            environment=environment, reward_source=full.reward.reward_source, traceable=True
        )
        report = await judge.check(request)
        if not report.ok or report.traceable:
            return caution
        text = findings_line(report.obstacles)
        if report.HasField("traceable"):
            return DeviceObstacle(text, moves=True)
        unknown = f"{text}; a training whose reward cannot moves to CPU cores when it starts"
        return DeviceObstacle("; ".join(filter(None, (unknown, caution.text))))

    def fill_on_device(self, full: v1.SessionSpec, *, request: v1.SessionSpec) -> None:
        """Fill in the preset for thousands of environments."""
        on_device.fill(full, request=request)

    def goal(self, full: v1.SessionSpec) -> str:
        """Return the threshold of judgments."""
        return f"{full.pass_threshold:g}"

    def text(self, iteration: v1.Iteration) -> str:
        """Return the reward's source."""
        return iteration.reward.source

    def open(self, context: SessionContext) -> RewardSession:
        """Return the reward method's part of a session."""
        return RewardSession(context)


class RewardSession:
    """One session's rewards and its judge."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._judge: Code | None = None

    def begin(self, first: int) -> None:
        """Prepare the judge of a session that resumes in a later iteration."""
        if first > 1:
            self._require_judge()

    def _require_judge(self) -> None:
        if self._judge is None and has_code_judge(self._context.spec):
            self._set_judge(authoring.author_judge(self._context))

    def _set_judge(self, judge: Code) -> None:
        self._judge = pass_check(self._context, 1, "judge", judge)[0]

    def restore(self, number: int) -> RewardProposal | None:
        """Return the reward whose training an earlier epoch began."""

        def look() -> Json:
            iteration = self._context.store.iteration(number)
            tries = len(trainings(iteration))
            if not iteration.reward.source or not tries:
                return None
            return {"source": iteration.reward.source, "author": iteration.author, "tries": tries}

        resumed = self._context.step(f"resumed:{number}", look)
        if resumed is None:
            return None
        self._require_judge()
        return RewardProposal.of(Code(resumed["source"], resumed["author"]), tries=resumed["tries"], is_checked=True)

    def adopt(self, number: int, directions: Directions) -> RewardProposal:
        """Return a person's reward."""
        self._require_judge()
        return RewardProposal.of(revising.directed_reward(self._context, number, directions))

    def propose(self, number: int) -> RewardProposal:
        """Return the first reward, and the judge with it."""
        reward, judge = authoring.author_first(self._context)
        written = authoring.review_code(self._context, number, {"reward": reward} | ({"judge": judge} if judge else {}))
        if "judge" in written:
            self._set_judge(written["judge"])
        return RewardProposal.of(written["reward"])

    def revise(self, number: int, directions: Directions) -> RewardProposal:
        """Return the reviser's reward."""
        reward = revising.revised_reward(self._context, number, directions)
        return RewardProposal.of(authoring.review_code(self._context, number, {"reward": reward})["reward"])

    def check(self, number: int, proposal: Proposal) -> RewardProposal:
        """Return the reward once it passes its check and does not order stored trajectories backwards."""
        assert isinstance(proposal, RewardProposal)
        reward, rounds = proposal.reward, 0
        while True:
            reward, report = pass_check(self._context, number, "reward", reward)
            self._settle(number, reward, report, proposal.tries)
            failure = prescreen(self._context, number, reward, self._judge, rounds=rounds)
            if failure is None:
                return RewardProposal.of(reward, tries=proposal.tries)
            reward, rounds = repair_code(self._context, number, "reward", reward, [failure]), rounds + 1
            enter(self._context, number, v1.PHASE_CHECK)

    def edit(self, proposal: Proposal, text: str) -> RewardProposal:
        """Return a person's reward, which replaces one that waits for approval."""
        assert isinstance(proposal, RewardProposal)
        code = replace(Code(text, USER), edits=proposal.reward.edits + 1)
        return RewardProposal.of(code, tries=proposal.tries)

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Train every config with every seed, and judge the results."""
        assert isinstance(proposal, RewardProposal)
        context, judge = self._context, self._judge
        reward, tries = proposal.reward, proposal.tries
        row = training.train(context, number, tries=tries, source=reward.source, judge=judge.source if judge else "")
        if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED:
            if on_device.is_refusal(row):
                on_device.move(context, number, row, tries=tries)
                return EvaluationResult(repaired=replace(proposal, tries=tries + 1, is_checked=True))
            if not row.assignment.generated_code_fault:
                raise training.failure_of(row)
            # The reward broke on states that the check did not cover: one more failure to repair.
            failure = ev.CheckFailure(rule="training", message=row.assignment.failure.message)
            mended = repair_code(context, number, "reward", reward, [failure])
            return EvaluationResult(repaired=RewardProposal.of(mended, tries=tries + 1))
        if judge is None and context.spec.reward.train_only:
            if chooses_checkpoints(context.spec):
                choose_checkpoints(context, number, row.name, None, reward_source=reward.source)
                row = context.store.assignment(row.name)
            context.step(f"best:{number}", lambda: judgment.record_unjudged(context, number, row))
            return EvaluationResult(passed=True)
        enter(context, number, v1.PHASE_JUDGE)
        try:
            source = self._judged_by_code(number, row.name)
            if self._judge is not None and chooses_checkpoints(context.spec):
                chosen = choose_checkpoints(context, number, row.name, self._judge, reward_source=reward.source)
                self._judge = chosen or self._judge
                source = self._judge.source
            verdict = judgment.judge_training(context, number, row.name, source)
        except (DressageError, Exhausted):  # the session ends, but not without its policy
            context.step(f"unjudged:{number}", lambda: judgment.record_best_unjudged(context, number, row.name))
            raise
        return EvaluationResult(passed=verdict.passed, score=verdict.score)

    def confirm(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Play the best config's policies on fresh seeds, and judge them again."""
        assert isinstance(proposal, RewardProposal)
        context = self._context
        name = resource_names.assignment_name(context.session, number, training.training_id(proposal.tries))
        again = judgment.score_best_again(context, number, name, reward_source=proposal.reward.source)
        verdict = judgment.judge_again(context, number, again, self._judged_by_code(number, again))
        return EvaluationResult(passed=verdict.passed, score=verdict.score)

    def _judged_by_code(self, number: int, assignment: str) -> str:
        """Have code judge an assignment; return the judge's source, empty if only video judges."""
        if self._judge is None:
            return ""
        self._judge = judgment.judge_by_code(self._context, number, assignment, self._judge)
        return self._judge.source

    def conclude(self) -> None:
        """Return None: the best iteration is confirmed when it passes, and has no other final score."""

    def deliverable(self) -> Deliverable | None:
        """Return the best judged policy, also of an iteration that has not finished."""
        return best_policy(self._context.store, self._context.engine.store)

    def _settle(self, number: int, reward: Code, report: judge_pb.CheckResponse, tries: int) -> None:
        """Record a reward that passed its check as the iteration's proposal, and write its files."""
        context, judge = self._context, self._judge

        def settle() -> None:
            before = context.store.iteration(number)
            changes = v1.Iteration(author=reward.author)
            changes.reward.source, changes.reward.latex = reward.source, report.latex
            changes.reward.terms.update(report.terms)
            changes.reward.configs.extend(before.reward.configs or configs.first_configs(context.spec))
            changes.reward.device_obstacle = on_device.obstacle(context, report)
            paths = [
                "author",
                "reward.source",
                "reward.latex",
                "reward.terms",
                "reward.configs",
                "reward.device_obstacle",
            ]
            on_device.warn(context, changes, number, key=f"{number}:{tries}:{reward.version}")
            if before.parent:
                parent = context.store.iteration(resource_names.parse_iteration(before.parent)[1])
                changes.number = number
                changes.diff = tools.diff(parent, changes)
                paths.append("diff")
            iteration = context.store.update_iteration(number, changes, paths)
            context.put_text(number, "reward.py", reward.source)
            if judge is not None:
                judgment.write_judge(context, number, judge)
            context.put_json(number, "proposal.json", proposal_json(iteration))

        context.step(f"settle:{number}:{tries}:{reward.version}", settle)


def proposal_json(iteration: v1.Iteration) -> Json:
    """Return the content of `proposal.json` for an iteration."""
    whole = MessageToDict(iteration, preserving_proto_field_name=True)
    reward = whole.get("reward", {})
    shared = {name: whole[name] for name in _PROPOSAL_JSON if name in whole}
    return shared | {name: reward[name] for name in _REWARD_JSON if name in reward}
