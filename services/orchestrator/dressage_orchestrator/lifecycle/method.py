"""What a method is to the lifecycle. The lifecycle never imports a method: it gets one from the registry.

A `Method` knows its settings and what they cost; `Method.open` gives a `MethodSession`, which does the method's part
of one session:
*propose, check, evaluate, revise*, and confirm. A `MethodSession` is made anew each time the workflow is taken up,
and steps that were recorded give it what they gave before; so it may keep in attributes what its steps returned, and
nothing else.

A class that derives from `Method` or `MethodSession` inherits defaults for what many methods do not need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from dressage.api.v1 import session_pb2 as v1
from google.protobuf.message import Message

from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.steering import Directions


@dataclass(frozen=True)
class Estimate:
    """What one iteration is expected to spend.

    :param input_tokens: tokens sent to a model in one iteration; with output_tokens, for the price.
    :param kind: what runs of this spec have in common that makes them equally fast; their measured speed is kept under it.
    """

    env_steps: int = 0
    evaluation_env_steps: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    kind: str = ""


@dataclass(frozen=True)
class Proposal:
    """What an iteration evaluates. Methods add their own fields.

    :param text: as a person reads and edits it.
    :param version: distinguishes an iteration's versions (repairs, a person's edits) in the names of steps.
    :param settled: an earlier epoch checked it and began to evaluate it.
    """

    text: str
    version: str = "0"
    settled: bool = False


@dataclass(frozen=True)
class Evaluated:
    """What came out of an evaluation.

    :param passed: whether the score reaches what the session asks for.
    :param score: in the method's terms; None where the evaluation has none.
    :param repaired: set instead of a score: a proposal to check and evaluate in this one's place.
    """

    passed: bool = False
    score: float | None = None
    repaired: Proposal | None = None


@dataclass(frozen=True)
class Deliverable:
    """The best policy of a session.

    :param iteration: number of its iteration.
    :param policy: artifact prefix of its bundle.
    :param member: full name of the member it belongs to; empty for none.
    :param rollout: artifact of the rollout that a video is drawn of; empty for none.
    :param env_step: environment steps the policy was trained for.
    """

    iteration: int
    policy: str
    member: str = ""
    rollout: str = ""
    env_step: int = 0


class MethodSession(Protocol):
    """A method's part of one session. Everything that decides the course happens in the context's steps."""

    def begin(self, first: int) -> None:
        """Prepare what all iterations need; by default nothing.

        :param first: number of the first iteration that is to be done.
        """
        return

    def restore(self, number: int) -> Proposal | None:
        """The proposal that an earlier epoch had begun to evaluate for the iteration; None, the default, if there is none."""
        return None

    def adopt(self, number: int, directions: Directions) -> Proposal:
        """A person's proposal (``directions.proposal``) for an iteration."""
        return Proposal(directions.proposal)

    def propose(self, number: int) -> Proposal:
        """The first proposal; by default a revision without directions."""
        return self.revise(number, Directions())

    def revise(self, number: int, directions: Directions) -> Proposal:
        """A later proposal.

        :raises Exhausted: when nothing better is known.
        """
        ...

    def check(self, number: int, proposal: Proposal) -> Proposal:
        """The proposal once it is fit to be evaluated, repaired as often as allowed, and recorded as the iteration's.

        :raises DressageError: when it is not fit.
        """
        ...

    def edited(self, proposal: Proposal, text: str) -> Proposal:
        """A person's text in the place of a proposal that waits for approval; not checked yet."""
        return replace(proposal, text=text, version=f"{proposal.version}-edit")

    def evaluate(self, number: int, proposal: Proposal) -> Evaluated:
        """Evaluates a checked proposal and records its score.

        :raises Exhausted: when a budget does not suffice.
        """
        ...

    def confirm(self, number: int, proposal: Proposal) -> Evaluated:
        """Scores what passed again, on fresh seeds, and records it."""
        ...

    def deliverable(self) -> Deliverable | None:
        """The best policy so far; None where there is none. In a step."""
        ...


class Method(Protocol):
    """A way to turn an intent into a policy, registered as an entry point of the group ``dressage.methods``.

    :cvar name: as users say it: ``reward``.
    :cvar spec_type: the message of its settings; a plug-in's travels as ``SessionSpec.custom``.
    """

    name: str
    spec_type: type[Message]

    def fill(self, spec: v1.SessionSpec) -> None:
        """Fill in the method's defaults; shared fields that are empty may be set, too."""
        return

    def validate(self, spec: v1.SessionSpec) -> None:
        """Refuse a filled spec that this method cannot serve; by default none.

        :raises InvalidArgument: naming the field.
        """
        return

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """What one iteration of a filled spec spends.

        :param episode_steps: steps of an episode at most.
        """
        ...

    def seconds(self, spec: v1.SessionSpec, estimate: Estimate, *, cores: int, known: float | None) -> float:
        """How long an iteration is expected to take; by default as long as its steps took earlier, 0 where that is unknown.

        :param known: environment steps per second of earlier runs of the estimate's kind; None if there were none.
        """
        return estimate.env_steps / known if known else 0.0

    async def check_edit(self, spec: v1.SessionSpec, text: str, *, judge: JudgeClient) -> None:
        """Refuse a person's proposal that could not be evaluated; by default none.

        :raises InvalidArgument: naming ``proposal_source``.
        """
        return

    def goal(self, spec: v1.SessionSpec) -> str:
        """The score from which a session succeeds, as text; by default the threshold of passing."""
        return f"{spec.pass_threshold:g}"

    def text(self, iteration: v1.Iteration) -> str:
        """The iteration's proposal as a person reads it; empty where there is none yet."""
        ...

    def open(self, context: SessionContext) -> MethodSession:
        """The method's part of a session."""
        ...


def custom_spec(spec: v1.SessionSpec, kind: type[Any]) -> Any:
    """The settings of a plug-in method, from ``spec.custom``; all defaults where they are not set."""
    message = kind()
    if spec.HasField("custom"):
        spec.custom.Unpack(message)
    return message
