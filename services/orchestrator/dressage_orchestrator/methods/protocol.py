"""The protocol of a method: nothing outside of a method's module asks which method a session has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.workflow.flow import Flow
from dressage_orchestrator.workflow.outcome import Outcome


@dataclass(frozen=True)
class Estimate:
    """What one iteration spends, expected.

    :param input_tokens: tokens sent to a model in one iteration; with output_tokens, for the price.
    """

    env_steps: int
    evaluation_env_steps: int
    model_calls: int
    input_tokens: int
    output_tokens: int


class Method(Protocol):
    """What a session proposes and how proposals are evaluated."""

    def validate(self, spec: v1.SessionSpec) -> None:
        """Refuses a filled spec that this method cannot serve.

        :raises InvalidArgument: naming the field.
        """
        ...

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """What one iteration of a filled spec spends.

        :param episode_steps: steps of an episode at most.
        """
        ...

    def run(self, flow: Flow) -> Outcome:
        """Runs the session from its recorded iterations to its end.

        :raises DressageError: what the session fails by.
        """
        ...
