"""What the backends have in common: the run that groups are built from, their protocol, and the warnings of an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata as distributions
from pathlib import Path
from typing import Any, Protocol

from dressage.contracts.reward import RewardModule
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.errors import InvalidArgument, ResourceExhausted
from dressage.training.preset import complete_hyperparameters
from dressage.training.replay_memory import ReplayUse, excess
from dressage.training.sac import SacHyperparameters

from dressage_trainer.checkpoints import Snapshot
from dressage_trainer.messages import MemberPolicy, MemberState, MemberStoppedMessage, TrainSpec, WarningMessage
from dressage_trainer.ppo.distributions import action_space_of
from dressage_trainer.ppo.faults import Stop
from dressage_trainer.ppo.interfaces import Arrays, Environment
from dressage_trainer.ppo.members import MemberSpec


@dataclass(frozen=True)
class MemberSetup:
    """The run that its groups are built from."""

    spec: TrainSpec
    card: EnvironmentCard
    options: EnvOptions
    module: RewardModule
    root: Path


@dataclass(frozen=True)
class Outcome:
    """Messages of an update, besides metrics."""

    stopped: list[MemberStoppedMessage] = field(default_factory=list)
    warnings: list[WarningMessage] = field(default_factory=list)


def stopped_message(member: str, stop: Stop) -> MemberStoppedMessage:
    """Return the message about a member that was stopped."""
    return MemberStoppedMessage(member, stop.step, f"{stop.cause.upper()}_NOT_FINITE", stop.message)


def member_specs(spec: TrainSpec) -> list[MemberSpec]:
    """Return the members with complete hyperparameters.

    :raises InvalidArgument: for bad hyperparameters or a repeated name.
    """
    members = []
    for task in spec.members:
        try:
            hyperparameters = complete_hyperparameters(spec.algorithm, task.hyperparameters, spec.environment)
        except InvalidArgument as error:
            raise InvalidArgument(f"member {task.member}: {error.message}", field=error.field) from error
        members.append(MemberSpec(task.member, hyperparameters, task.seed))
    names = [member.name for member in members]
    if len(set(names)) != len(names):
        raise InvalidArgument(field="members", value=names, expected="distinct ids")
    return members


class TrainedGroup(Protocol):
    """Members that a backend trains together, update by update."""

    names: list[str]

    @property
    def steps(self) -> int:
        """Environment steps of each member."""

    @property
    def updates(self) -> int:
        """Updates done."""

    @property
    def all_stopped(self) -> bool:
        """Whether no member can continue."""

    @property
    def stops(self) -> list[Stop]:
        """The members that were stopped, and why."""

    def begin(self) -> None:
        """Open the metrics of a new run."""

    def restore(self, arrays: Arrays) -> None:
        """Continue from a snapshot."""

    def advance(self, *, began: float) -> Outcome:
        """Do one rollout and update, and write the metrics.

        :param began: `time.monotonic` at the start of training, for the rows' ``seconds``.
        """

    def states(self) -> list[MemberState]:
        """Return each member's latest metrics."""

    def policies(self) -> list[MemberPolicy]:
        """Return the current policies of the members that were not stopped."""

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with to be resumed."""

    def snapshot(self) -> Arrays:
        """Return the state at this update boundary, metrics included."""

    def close(self) -> None:
        """Close files."""


def minibatch_warnings(spec: TrainSpec) -> list[WarningMessage]:
    """Return a warning for each member whose minibatch is larger than its rollout."""
    if spec.algorithm == "sac":  # it draws minibatches from the replay buffer
        return []
    warnings = []
    for task, member in zip(spec.members, member_specs(spec), strict=True):
        requested, used = task.hyperparameters.get("minibatch_size", 0), member.hyperparameters.minibatch_size
        if requested > used:
            text = f"minibatch_size {requested:g} is more than the {used} samples of an update; the minibatch is {used}"
            warnings.append(WarningMessage("MINIBATCH_TOO_LARGE", text, task.member))
    return warnings


def divergence_warnings(before: int, now: int, *, member: str = "") -> list[WarningMessage]:
    """Return the warning that the simulation diverged: at the first environment step that did, the 10th, the 100th, ….

    A reward that drives the body to its limits would otherwise repeat it for ever.

    :param before: environment steps that had diverged at the last call, those before a checkpoint included.
    :param now: environment steps that have diverged so far.
    :returns: one warning, or none.
    """
    if not _tenfold(before, now):
        return []
    text = f"the simulation diverged in {now} environment steps so far; each ended its episode"
    return [WarningMessage("SIMULATION_DIVERGED", text, member)]


def overflow_warnings(before: int, now: int) -> list[WarningMessage]:
    """Return the warning that the simulator's space for contacts or constraints did not suffice, as `divergence_warnings`."""
    if not _tenfold(before, now):
        return []
    text = f"{now} environment steps so far had more contacts or constraints than the simulator has space for"
    return [WarningMessage("SIMULATION_OVERFLOWED", f"{text}; each ended its episode")]


def _tenfold(before: int, now: int) -> bool:
    """Whether a count is at its first, 10th, 100th, … for the first time: each tenfold is one more digit."""
    return now > 0 and (before <= 0 or len(str(now)) > len(str(before)))


def action_facts(environment: Environment) -> dict[str, Any]:
    """Return the entries of a policy's card that describe actions."""
    space = action_space_of(environment)
    if space.discrete:
        return {"action_kind": "discrete", "num_actions": space.num_actions, "action_low": (), "action_high": ()}
    bounds = {"action_low": environment.action_low, "action_high": environment.action_high}
    # From the shortest text: 0.4 in single precision means 0.4.
    return {name: tuple(float(str(value)) for value in values) for name, values in bounds.items()}


def check_memory(setup: MemberSetup, members: Sequence[MemberSpec]) -> None:
    """Refuse a run whose replay buffers would outgrow the learner's memory, or a checkpoint.

    The server refuses it when the session is created. It does not know of the members that a reviser adds, or of a machine
    that has less memory than its pool states.

    :raises ResourceExhausted: with the transitions that fit.
    """
    spec, card = setup.spec, setup.card
    use = ReplayUse(
        [_settings(member) for member in members],
        observation_size=max(member.hyperparameters.inputs(card.observation_size) for member in members),
        action_size=card.action_size,
        steps=spec.last_step,
        backend=spec.backend,
    )
    problem = excess(use, memory_bytes=spec.memory_bytes, checkpoint_bytes=spec.checkpoint_bytes)
    if problem:
        raise ResourceExhausted(f"replay_size: {problem}", reason="REPLAY_TOO_LARGE")


def _settings(member: MemberSpec) -> SacHyperparameters:
    assert isinstance(member.hyperparameters, SacHyperparameters)
    return member.hyperparameters


def check_actions(algorithm: str, environment: Environment) -> None:
    """Refuse SAC for discrete actions.

    :raises InvalidArgument: naming the algorithm.
    """
    if algorithm == "sac" and action_space_of(environment).discrete:
        raise InvalidArgument(field="algorithm", value="sac", expected="ppo: the environment has discrete actions")


def versions_of(*packages: str) -> dict[str, str]:
    """Return installed versions, for a policy's card."""
    return {name: distributions.version(name) for name in packages}


def facts_of(setup: MemberSetup, members: list[MemberSpec], **more: Any) -> dict[str, Any]:
    """Return what a checkpoint must agree with to be resumed."""
    return {
        "environment": setup.card.id,
        "options": dict(setup.options.overrides()),
        "reward": setup.spec.reward_source,
        "members": [{"name": m.name, "seed": m.seed, "hyperparameters": m.hyperparameters.to_dict()} for m in members],
        **more,
    }


def begin_or_resume(groups: Sequence[TrainedGroup], resumed: Snapshot | None) -> None:
    """Begin a run, or continue from a snapshot.

    :raises InvalidArgument: if the snapshot is of another run.
    """
    if resumed is None:
        for group in groups:
            group.begin()
        return
    if resumed.facts.get("groups") != [group.facts() for group in groups]:
        raise InvalidArgument(
            "the checkpoint is of another run: environment, reward, members or hyperparameters differ",
            field="resume",
            reason="CHECKPOINT_MISMATCH",
        )
    for index, group in enumerate(groups):
        group.restore(resumed.part(f"group{index}/"))
