"""The interface of methods. The lifecycle never imports a method: it gets methods from the registry.

A `Method` validates its settings and estimates their cost. `Method.open` creates a `MethodSession`, which implements the
method's part of one session: *propose, check, evaluate, revise* and *confirm*. A `MethodSession` is created each time the
workflow is resumed, and recorded steps return their recorded results. It may therefore keep results of steps in attributes,
and nothing else.

Classes that derive from `Method` or `MethodSession` inherit defaults for what many methods do not need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from dressage.api.v1 import session_pb2 as v1
from dressage.sandbox.machine import Machine
from google.protobuf.message import Message

from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.steering import Directions


@dataclass(frozen=True)
class RoleCalls:
    """Model calls of a role in one iteration.

    :param least: lower bound, as `most` is the upper one.
    :param expected: mean over the iterations of a session.
    :param input_tokens: tokens sent in a call.
    :param output_tokens: tokens received in a call.
    """

    role: str
    least: float
    expected: float
    most: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class DeviceObstacle:
    """Why a proposal cannot be trained on a pool of devices, or what the user should know before it is.

    :param text: the reason; empty: it can, or there is no proposal yet.
    :param moves: whether it therefore trains on a pool of CPU cores; False: it stays, also where that is not known.
    """

    text: str = ""
    moves: bool = False


@dataclass(frozen=True)
class Load:
    """How much a training computes at once, and for how long: a device's speed depends on it.

    :param members: trained together.
    :param worlds: environments of all members together.
    :param steps: environment steps of a member.
    """

    members: int
    worlds: int
    steps: int

    def of_kind(self, kind: str) -> str:
        """Return the key of the recorded speed of such trainings. Steps count by powers of two: a start takes its time."""
        return f"{kind} {self.members}x{self.worlds} 2^{self.steps.bit_length()}"

    def text(self) -> str:
        """Return it in words."""
        members = f"{self.members} member{'s' if self.members > 1 else ''}"
        return f"{members}, {self.worlds:,} environments and about {self.steps:,} steps per member"


@dataclass(frozen=True)
class Estimate:
    """Expected usage of one iteration.

    :param model_calls: calls of a method without `calls`; so are its tokens in one iteration.
    :param kind: key of the recorded speed, equal for specs whose trainings are equally fast.
    :param calls: calls by role, with bounds; empty: none is known.
    :param options_of_author: options of the environment that the author may change.
    :param most_env_steps: environment steps if trainings continue as long as they may; 0: as expected.
    :param measured_env_steps: environment steps of a measured session of the kind until it passed; 0: none was measured.
    :param measured_core_seconds: its processor time.
    :param measured: what was measured, as text.
    :param load: of its trainings; None where their speed does not depend on it.
    """

    env_steps: int = 0
    evaluation_env_steps: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    kind: str = ""
    calls: tuple[RoleCalls, ...] = ()
    options_of_author: tuple[str, ...] = ()
    most_env_steps: int = 0
    measured_env_steps: int = 0
    measured_core_seconds: float = 0.0
    measured: str = ""
    load: Load | None = None

    def longest(self) -> Estimate:
        """Return the estimate of an iteration whose training continues as long as it may."""
        most = max(self.most_env_steps, self.env_steps)
        evaluated = self.evaluation_env_steps * most // max(1, self.env_steps)
        return replace(self, env_steps=most, evaluation_env_steps=evaluated, measured_core_seconds=0.0, measured="")

    def by_role(self) -> tuple[RoleCalls, ...]:
        """Return the calls by role; without a division into roles and bounds those of the session's model."""
        if self.calls or not self.model_calls:
            return self.calls
        n = self.model_calls
        return (RoleCalls("", n, n, n, self.input_tokens // n, self.output_tokens // n),)


@dataclass(frozen=True)
class Proposal:
    """The proposal of an iteration. Methods add fields.

    :param text: the proposal as text, which people read and edit.
    :param version: distinguishes an iteration's versions (repairs, a person's edits) in the names of steps.
    :param is_checked: whether an earlier epoch checked it and started its evaluation.
    """

    text: str
    version: str = "0"
    is_checked: bool = False


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an evaluation.

    :param passed: whether the score reaches the goal.
    :param score: in the unit of the method; None if the evaluation has no score.
    :param repaired: set instead of a score: a proposal that replaces this one, to check if it is not checked, and to evaluate.
    """

    passed: bool = False
    score: float | None = None
    repaired: Proposal | None = None


@dataclass(frozen=True)
class Deliverable:
    """The best policy of a session.

    :param iteration: number of its iteration.
    :param policy: artifact prefix of its bundle.
    :param member: full name of its member; empty for none.
    :param rollout: artifact of the rollout to render; empty for none.
    :param env_step: environment steps of its training.
    :param score: its own score; None: that of the session, if the iteration is the best one.
    :param interrupted: whether it is a checkpoint of an iteration that has not finished.
    """

    iteration: int
    policy: str
    member: str = ""
    rollout: str = ""
    env_step: int = 0
    score: float | None = None
    interrupted: bool = False


class MethodSession(Protocol):
    """A method's part of one session. Everything that determines the course happens in the context's steps."""

    def begin(self, first: int) -> None:
        """Prepare for all iterations; by default do nothing.

        :param first: number of the first iteration to run.
        """
        return

    def restore(self, number: int) -> Proposal | None:
        """Return the iteration's proposal whose evaluation started in an earlier epoch; by default None."""
        return None

    def adopt(self, number: int, directions: Directions) -> Proposal:
        """Return a person's proposal (``directions.proposal``) for an iteration."""
        return Proposal(directions.proposal)

    def propose(self, number: int) -> Proposal:
        """Return the first proposal; by default a revision without directions."""
        return self.revise(number, Directions())

    def revise(self, number: int, directions: Directions) -> Proposal:
        """Return a later proposal.

        :raises Exhausted: when the method has no further proposal.
        """
        ...

    def check(self, number: int, proposal: Proposal) -> Proposal:
        """Check a proposal, repair it within the limits, and record it in the iteration.

        :return: the checked proposal.
        :raises DressageError: when the proposal fails its checks.
        """
        ...

    def edit(self, proposal: Proposal, text: str) -> Proposal:
        """Return a person's replacement of a proposal that waits for approval; not checked yet."""
        return replace(proposal, text=text, version=f"{proposal.version}-edit")

    def evaluate(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Evaluate a checked proposal and record its score.

        :raises Exhausted: when a budget is insufficient.
        """
        ...

    def confirm(self, number: int, proposal: Proposal) -> EvaluationResult:
        """Score a proposal that passed on fresh seeds, and record this score."""
        ...

    def conclude(self) -> EvaluationResult | None:
        """Score the best policy once after the last iteration, also when a budget is exhausted; by default None.

        :return: the final score, and whether it reaches the goal; None if the method has no final score.
        """
        return None

    def deliverable(self) -> Deliverable | None:
        """Return the best policy so far; None if there is none. In a step."""
        ...


class Method(Protocol):
    """A way to turn an intent into a policy, registered as an entry point of the group ``dressage.methods``.

    :cvar name: name in the API and the command line, for example ``reward``.
    :cvar spec_type: message of its settings; that of a plug-in is sent as ``SessionSpec.custom``.
    :cvar joins_effects: whether changes of phase are parts of the next step instead of steps, for methods with many short
        iterations. A change of it loses pending workflows.
    """

    name: str
    spec_type: type[Message]
    joins_effects: bool = False

    def fill(self, spec: v1.SessionSpec) -> None:
        """Fill in the method's defaults; empty shared fields may be set as well."""
        return

    def validate(self, spec: v1.SessionSpec) -> None:
        """Reject a spec with defaults that this method does not support; by default none.

        :raises InvalidArgument: naming the field.
        """
        return

    def check_machine(self, spec: v1.SessionSpec, machine: Machine) -> None:
        """Reject a valid spec with defaults that a trainer cannot hold; by default none.

        :param machine: memory and scratch space of a trainer of the spec's pool.
        :raises InvalidArgument: naming the field and what fits.
        """
        return

    def refusal_to_continue(self, spec: v1.SessionSpec) -> str:
        """Return why an iteration cannot continue from its parent's policies; empty if it can."""
        return f"the method {self.name!r} trains no policies that could continue"

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Estimate the usage of one iteration of a spec with defaults.

        :param episode_steps: maximum number of steps of an episode.
        """
        ...

    def seconds(self, spec: v1.SessionSpec, estimate: Estimate, *, cores: int, rate: float | None) -> float:
        """Estimate the duration of an iteration; by default from the recorded speed, 0 if there is none.

        :param rate: recorded environment steps per second of the estimate's kind; None if there are none.
        """
        return estimate.env_steps / rate if rate else 0.0

    async def check_edit(self, spec: v1.SessionSpec, text: str, *, judge: JudgeClient) -> None:
        """Reject a person's proposal that cannot be evaluated; by default none.

        :raises InvalidArgument: naming ``proposal_source``.
        """
        return

    async def device_obstacle(self, spec: v1.SessionSpec, *, judge: JudgeClient) -> DeviceObstacle:
        """Why the proposal that a spec with defaults contains cannot be trained on a pool of devices; by default nothing."""
        return DeviceObstacle()

    def fill_on_device(self, spec: v1.SessionSpec, *, request: v1.SessionSpec) -> None:
        """Replace defaults by those of a pool of devices; by default none differ.

        :param spec: with defaults for a pool of CPU cores.
        :param request: as the caller wrote it.
        """
        return

    def goal(self, spec: v1.SessionSpec) -> str:
        """Score required to succeed, as text; by default the pass threshold."""
        return f"{spec.pass_threshold:g}"

    def note(self, spec: v1.SessionSpec) -> str:
        """What the user should read before such a session, such as that it is slow; by default nothing."""
        return ""

    def text(self, iteration: v1.Iteration) -> str:
        """The iteration's proposal as text; empty if there is none yet."""
        ...

    def open(self, context: SessionContext) -> MethodSession:
        """Create the method's part of a session."""
        ...


def custom_spec(spec: v1.SessionSpec, kind: type[Any]) -> Any:
    """Unpack the settings of a plug-in method from ``spec.custom``; all defaults if not set."""
    message = kind()
    if spec.HasField("custom"):
        spec.custom.Unpack(message)
    return message
