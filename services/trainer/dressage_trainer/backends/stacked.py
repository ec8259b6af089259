"""The first backend: members of equal shape train as one, stacked, with PPO or SAC, and their files and warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from dressage.errors import InvalidArgument
from dressage.policies import PolicyCard

from dressage_trainer.backends.device import parts_on_device
from dressage_trainer.backends.group import (
    MemberSetup,
    Outcome,
    action_facts,
    begin_or_resume,
    check_actions,
    check_memory,
    divergence_warnings,
    facts_of,
    member_specs,
    overflow_warnings,
    stopped_message,
    versions_of,
)
from dressage_trainer.backends.metrics import MemberMetrics
from dressage_trainer.backends.monitor import Monitor
from dressage_trainer.backends.reward import WatchedReward, fields_read
from dressage_trainer.checkpoints import Snapshot
from dressage_trainer.messages import MemberPolicy, MemberState, WarningMessage
from dressage_trainer.ppo import snapshot as ppo_snapshot
from dressage_trainer.ppo.device_collection import DeviceCollector
from dressage_trainer.ppo.faults import Stop
from dressage_trainer.ppo.inputs import narrow, seen_by_networks, widen
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward
from dressage_trainer.ppo.members import MemberSpec, group_members
from dressage_trainer.ppo.normalizer import EPSILON
from dressage_trainer.ppo.ppo import PPO, Metrics
from dressage_trainer.ppo.vec_env import VecEnv
from dressage_trainer.sac import snapshot as sac_snapshot
from dressage_trainer.sac.sac import SAC
from dressage_trainer.speed.lanes import BackgroundCompilation, PpoLanes, SacLanes

_PACKAGES = ("dressage", "jax", "mujoco", "numpy")
_DEVICE_PACKAGES = ("mujoco-warp", "warp-lang")
_STATE = "state/"


class Update(Protocol):
    """The compiled updates of a group."""

    compilation: BackgroundCompilation


class StackedGroup(Protocol):
    """A group in training, which stands at an update boundary between two calls of `iterate`."""

    env: VecEnv
    updates: int

    def iterate(self) -> list[Metrics]:
        """Train up to the next boundary; a row of metrics for each member."""


@dataclass(frozen=True)
class Algorithm:
    """How an algorithm is built, saved and described."""

    update: Callable[..., Any]
    """An `Update` of ``(members, environment=, threads=)``."""
    build: Callable[..., StackedGroup]
    """A group of ``(members, environment, reward, update, steps=)``, with the environment steps of the training."""
    snapshot: ModuleType
    """``take``, ``restore``, ``policy_arrays`` and ``return_statistics``; of PPO ``continue_from`` too."""
    network: Mapping[str, Any]
    """Entries of a policy's card that describe the network."""


def _ppo(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, update: Any, *, steps: int
) -> StackedGroup:
    return PPO(members, environment=environment, reward=reward, optimise=update)


def _ppo_on_device(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, update: Any, *, steps: int
) -> StackedGroup:
    return PPO(members, environment=environment, reward=reward, optimise=update, collector=DeviceCollector)


def _sac(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, update: Any, *, steps: int
) -> StackedGroup:
    return SAC(members, environment=environment, reward=reward, steps=steps, optimise=update)


_PPO = Algorithm(update=PpoLanes, build=_ppo, snapshot=ppo_snapshot, network={})
_SAC = Algorithm(update=SacLanes, build=_sac, snapshot=sac_snapshot, network={"squash": True, "activation": "relu"})


def algorithm_of(name: str, *, on_device: bool = False) -> Algorithm:
    """Return an algorithm by its name; empty: PPO.

    :param on_device: whether the environments run on a device.
    :raises InvalidArgument: for an unknown one, or one that does not collect on a device.
    """
    if on_device and name not in ("", "ppo"):
        raise InvalidArgument(field="algorithm", value=name, expected="ppo, where the environments run on a device")
    algorithm = {"": _PPO, "ppo": _PPO, "sac": _SAC}.get(name)
    if algorithm is None:
        raise InvalidArgument(field="algorithm", value=name, expected="ppo or sac")
    return replace(algorithm, build=_ppo_on_device) if on_device else algorithm


def build_groups(setup: MemberSetup, *, make_batch: Callable[..., Any], resumed: Snapshot | None = None) -> list[Group]:
    """Build one `Group` per shape.

    :param resumed: the snapshot that the run resumes from; None if it begins.
    :raises InvalidArgument: if the snapshot is of other members.
    """
    members = member_specs(setup.spec)
    if setup.spec.algorithm == "sac":
        check_memory(setup, members)
    groups = [Group(setup, group, make_batch=make_batch) for group in group_members(members)]
    begin_or_resume(groups, resumed)
    return groups


def _check_whole_observations(member: MemberSpec) -> None:
    inputs = member.hyperparameters.observation_inputs
    if inputs:
        expected = "0, where the environments run on a device"
        raise InvalidArgument(field="observation_inputs", value=inputs, expected=expected)


class Group:
    """Trains its members update by update and writes their files; see `group.TrainedGroup`."""

    def __init__(self, setup: MemberSetup, members: Sequence[MemberSpec], *, make_batch: Callable[..., Any]) -> None:
        self._setup, self._members = setup, list(members)
        self._environment: Any
        self.names = [member.name for member in members]
        self._starts = {task.member: task.start for task in setup.spec.members if task.start is not None}
        rows = len(members) * members[0].hyperparameters.num_envs
        spec, card = setup.spec, setup.card
        self._algorithm = algorithm_of(spec.algorithm, on_device=spec.on_device)
        reward: Any
        if spec.on_device:
            _check_whole_observations(members[0])
            num_envs = members[0].hyperparameters.num_envs
            self._environment, reward = parts_on_device(setup, members=len(members), num_envs=num_envs)
        else:
            fields = fields_read(spec.reward_source, setup.module, card)
            batch = make_batch(spec.environment, rows, num_threads=spec.threads, options=setup.options, fields=fields)
            self._environment = seen_by_networks(batch, members[0].hyperparameters)
            # A value that is not finite stops only its member; an exception would end all.
            reward = WatchedReward(setup.module, card, rows, on_not_finite="return")
        # The algorithm's page imports no speed work; the faster update is passed in (decision 0036).
        check_actions(spec.algorithm, self._environment)
        self._update = self._algorithm.update(members, environment=self._environment, threads=spec.threads)
        self.stacked = self._algorithm.build(members, self._environment, reward, self._update, steps=spec.last_step)
        self._metrics: list[MemberMetrics] = []
        self._monitors = [Monitor(steps=spec.steps_per_member) for _ in members]
        self._latest: list[Metrics] = [{} for _ in members]
        self._reported: set[int] = set()
        self._divergences = self._overflows = 0

    def begin(self) -> None:
        """Put the members' start policies in place, and open the metrics of a new run."""
        for index, name in enumerate(self.names):
            start = self._starts.get(name)
            if start is not None:
                self._algorithm.snapshot.continue_from(
                    self.stacked,
                    index,
                    weights=narrow(start.weights, self._environment.observation_size),
                    statistics=start.statistics,
                    keeps_value=start.keeps_value,
                )
        self._open_metrics({})

    @property
    def steps(self) -> int:
        """Environment steps of each member."""
        return self.stacked.env.steps

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.stacked.updates

    @property
    def all_stopped(self) -> bool:
        """Whether no member can continue."""
        return len(self.stops) == len(self._members)

    @property
    def stops(self) -> list[Stop]:
        """The members that were stopped, and why."""
        return list(self.stacked.env.faults.stops.values())

    def advance(self, *, began: float) -> Outcome:
        """Do one rollout and update, and write the metrics.

        :param began: `time.monotonic` at the start of training, for the rows' ``seconds``.
        """
        self._update.compilation.begin()  # while the first rollout is collected
        rows = self.stacked.iterate()
        outcome = Outcome()
        for index, row in enumerate(rows):
            row["seconds"] = time.monotonic() - began
            row["compile_seconds"] = self._update.compilation.seconds
            self._latest[index] = row
            if index in self._reported:
                continue
            self._metrics[index].add(row)
            if index in self.stacked.env.faults.stops:  # its figures from here on, such as the entropy, mean nothing
                continue
            for warn in self._monitors[index].see(row):
                outcome.warnings.append(WarningMessage(warn.reason, warn.message, self.names[index]))
        for index, stop in self.stacked.env.faults.stops.items():
            if index not in self._reported:
                self._reported.add(index)
                outcome.stopped.append(stopped_message(self.names[index], stop))
        before, self._divergences = self._divergences, self._environment.divergences
        outcome.warnings.extend(divergence_warnings(before, self._divergences))
        before, self._overflows = self._overflows, getattr(self._environment, "overflows", 0)
        outcome.warnings.extend(overflow_warnings(before, self._overflows))
        return outcome

    def states(self) -> list[MemberState]:
        """Return each member's latest metrics; a member that was stopped has the steps until then."""
        stopped = self.stacked.env.faults.stops
        return [
            MemberState(
                member=name,
                env_step=stopped[index].step if index in stopped else self.steps,
                metrics={key: value for key, value in row.items() if value is not None},
            )
            for index, (name, row) in enumerate(zip(self.names, self._latest, strict=True))
        ]

    def policies(self) -> list[MemberPolicy]:
        """Return the current policies of the members that were not stopped."""
        arrays, going = self._algorithm.snapshot.policy_arrays, ~self.stacked.env.faults.mask()
        size = self._setup.card.observation_size
        return [
            MemberPolicy(
                self.names[i], self.steps, self._policy_card(i).to_dict(), widen(arrays(self.stacked, i), size)
            )
            for i in map(int, np.flatnonzero(going))
        ]

    def _policy_card(self, index: int) -> PolicyCard:
        member, card = self._members[index], self._setup.card
        return PolicyCard(
            environment=card.id,
            observation_size=card.observation_size,
            **action_facts(self._environment),
            **self._algorithm.network,
            hidden_sizes=member.hyperparameters.hidden_sizes,
            normalize_observation=member.hyperparameters.normalize_observation,
            epsilon=EPSILON,
            clip=member.hyperparameters.observation_clip,
            environment_options=dict(self._setup.options.overrides()),
            statistics={
                "obs_count": float(self.stacked.env.observations.moments.count[index]),
                **self._algorithm.snapshot.return_statistics(self.stacked, index),
                "discount": member.hyperparameters.discount,
                "reward_clip": member.hyperparameters.reward_clip,
            },
            provenance={
                **self._setup.spec.provenance,
                "member": member.name,
                "seed": member.seed,
                "env_steps": self.steps,
                "algorithm": self._setup.spec.algorithm or "ppo",
                "hyperparameters": member.hyperparameters.to_dict(),
                **({"simulation": dict(self._environment.env.provenance)} if self._setup.spec.on_device else {}),
                **({"continues": self._starts[member.name].provenance} if member.name in self._starts else {}),
                "versions": versions_of(*_PACKAGES, *(_DEVICE_PACKAGES if self._setup.spec.on_device else ())),
            },
        )

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with to be resumed."""
        spec = self._setup.spec
        return facts_of(self._setup, self._members, algorithm=spec.algorithm or "ppo", on_device=spec.on_device)

    def snapshot(self) -> Arrays:
        """Return the state at this update boundary, metrics included."""
        rows = {f"metrics/{i}": metrics.to_bytes() for i, metrics in enumerate(self._metrics)}
        state = self._algorithm.snapshot.take(self.stacked)
        return {**{f"{_STATE}{name}": value for name, value in state.items()}, **rows}

    def restore(self, arrays: Arrays) -> None:
        """Continue from a snapshot."""
        state = {n.removeprefix(_STATE): value for n, value in arrays.items() if n.startswith(_STATE)}
        self._algorithm.snapshot.restore(self.stacked, state)
        self._reported = set(self.stacked.env.faults.stops)
        self._divergences = self._environment.divergences
        self._overflows = getattr(self._environment, "overflows", 0)
        self._open_metrics(arrays)

    def _open_metrics(self, arrays: Arrays) -> None:
        self._metrics = [
            MemberMetrics(
                self._setup.root / "members" / name,
                earlier=np.asarray(arrays.get(f"metrics/{i}", ()), np.uint8).tobytes(),
            )
            for i, name in enumerate(self.names)
        ]
        # Warnings from before the checkpoint are not repeated.
        for monitor, metrics in zip(self._monitors, self._metrics, strict=True):
            for row in metrics.rows():
                monitor.see(row)

    def close(self) -> None:
        """Close the metrics files."""
        for metrics in self._metrics:
            metrics.close()
