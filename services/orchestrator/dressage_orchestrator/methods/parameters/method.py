"""Method `parameters`: the numbers of a small policy, proposed by a model or found by a search without one."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from google.protobuf.message import Message

from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.method import Estimate, Method, MethodSession
from dressage_orchestrator.methods.parameters import spec
from dressage_orchestrator.methods.parameters.controls import ControlSearch
from dressage_orchestrator.methods.parameters.form import Form, as_text
from dressage_orchestrator.methods.parameters.models import ModelSearch
from dressage_orchestrator.methods.parameters.variants import VARIANTS


class ParameterMethod(Method):
    """Searches for the parameters of a policy, by a model or without one."""

    name = "parameters"
    spec_type: type[Message] = v1.ParameterSpec
    joins_effects = True

    def fill(self, full: v1.SessionSpec) -> None:
        """Fill in the defaults of `spec`."""
        spec.fill(full)

    def validate(self, full: v1.SessionSpec) -> None:
        """Reject a spec that contradicts itself or its environment."""
        spec.validate(full)

    def estimate(self, full: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Return the estimate of one iteration; environment steps are those of the longest episodes."""
        return spec.estimate(full, episode_steps=episode_steps)

    async def check_edit(self, full: v1.SessionSpec, text: str, *, judge: JudgeClient) -> None:
        """Reject a person's parameters of another number or beyond the range."""
        Form.of(full, load_card(spec.environment_of(full))).parse(text, field="proposal_source")

    def goal(self, full: v1.SessionSpec) -> str:
        """Return the mean return required on report seeds."""
        target = spec.target_of(full, load_card(spec.environment_of(full)))
        return f"a mean return of {target:g}"

    def text(self, iteration: v1.Iteration) -> str:
        """Return the parameters as JSON; empty if there are none yet."""
        return as_text(iteration.parameters.values) if iteration.parameters.values else ""

    def open(self, context: SessionContext) -> MethodSession:
        """Return the method's part of a session."""
        search = context.spec.parameters.search
        return ModelSearch(context) if search in VARIANTS else ControlSearch(context)
