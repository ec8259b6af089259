"""The tasks of the parameter proposer and the critic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.methods.parameters.form import Form
from dressage_orchestrator.methods.parameters.history import WARMUP, Trial
from dressage_orchestrator.methods.parameters.variants import Profile, Variant


class Prompts:
    """Builds the tasks of a session.

    :param excerpt: text of a trial's rollout for the history.
    """

    def __init__(
        self,
        spec: v1.SessionSpec,
        form: Form,
        *,
        variant: Variant,
        profile: Profile,
        excerpt: Callable[[Trial], str],
    ) -> None:
        self._settings, self._form = spec.parameters, form
        self._variant, self._profile = variant, profile
        self._iterations = profile.iterations.get(variant.name, spec.max_iterations)
        self._digits = profile.digits.get(variant.name, profile.digits[""])
        self._excerpt = excerpt

    def proposer(
        self,
        brief: agent_pb.Brief,
        number: int,
        trials: Sequence[Trial],
        *,
        notes: Sequence[str] = (),
        evidence: str = "",
        previous: Trial | None = None,
    ) -> agent_pb.ParameterProposerTask:
        """Return the task of a proposal.

        :param trials: evaluated candidates.
        :param evidence: text about the latest parameters.
        :param previous: the first candidate of the same iteration, if this is the second one.
        """
        task = agent_pb.ParameterProposerTask(
            brief=brief,
            form=self._form.message(digits=self._digits),
            history=self._history(trials),
            iteration=number,
            iterations=self._iterations,
            step_size=self._settings.step_size,
            describe_environment=self._variant.describes,
            evidence=evidence,
            self_critique=self._variant.self_critique,
            notes=notes,
        )
        if self._settings.HasField("optimum"):
            task.optimum = self._settings.optimum
        if previous is not None:
            task.previous.CopyFrom(message_of(previous))
        return task

    def critic(
        self,
        brief: agent_pb.Brief,
        number: int,
        trials: Sequence[Trial],
        *,
        proposal: Trial,
        evidence: str,
        notes: Sequence[str] = (),
    ) -> agent_pb.CriticTask:
        """Return the task of a revision.

        :param proposal: the candidate to revise.
        :param evidence: statistics and rollouts of the candidate.
        """
        task = agent_pb.CriticTask(
            brief=brief,
            form=self._form.message(digits=self._digits),
            proposal=message_of(proposal),
            history=self._history(trials),
            evidence=evidence,
            focus=self._variant.focus,
            step_size=self._settings.step_size,
            iteration=number,
            iterations=self._iterations,
            notes=notes,
        )
        if self._settings.HasField("optimum"):
            task.optimum = self._settings.optimum
        if self._settings.revision_rule != "none":
            task.revision_threshold = self._settings.revision_threshold
        return task

    def _history(self, trials: Sequence[Trial]) -> list[agent_pb.ParameterTrial]:
        messages = [message_of(trial) for trial in trials]
        count = self._profile.latest_with_rollout(self._variant, table=self._form.choices > 0)
        if self._variant.trace and count:
            for trial, message in list(zip(trials, messages, strict=True))[-count:]:
                if trial.origin != WARMUP:
                    message.rollout = self._excerpt(trial)
        return messages


def message_of(trial: Trial) -> agent_pb.ParameterTrial:
    """Return a trial as prompts show it."""
    return agent_pb.ParameterTrial(
        values=trial.values,
        mean_return=trial.mean,
        episodes=len(trial.returns),
        iteration=0 if trial.origin == WARMUP else trial.iteration,
    )
