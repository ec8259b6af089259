"""The first backend: members of equal shape train as one, with the stacked PPO, its environment, reward, files and warnings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dressage.policies import PolicyCard

from dressage_trainer.backends.group import (
    MemberSetup,
    Outcome,
    action_facts,
    begin_or_resume,
    divergence_warnings,
    facts_of,
    member_specs,
    stopped_message,
    versions_of,
)
from dressage_trainer.backends.metrics import MemberMetrics
from dressage_trainer.backends.monitor import Monitor
from dressage_trainer.backends.reward import WatchedReward, fields_read
from dressage_trainer.checkpoints import Snapshot
from dressage_trainer.messages import MemberPolicy, MemberState, WarningMessage
from dressage_trainer.ppo import snapshot
from dressage_trainer.ppo.faults import Stop
from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.members import MemberSpec, group_members
from dressage_trainer.ppo.normalizer import EPSILON
from dressage_trainer.ppo.ppo import PPO, Metrics
from dressage_trainer.speed.lanes import LaneUpdate

_PACKAGES = ("dressage", "jax", "mujoco", "numpy")


def build_groups(setup: MemberSetup, *, make_batch: Callable[..., Any], resumed: Snapshot | None = None) -> list[Group]:
    """Build one `Group` per shape.

    :param resumed: the snapshot that the run resumes from; None if it begins.
    :raises InvalidArgument: if the snapshot is of other members.
    """
    groups = [Group(setup, members, make_batch=make_batch) for members in group_members(member_specs(setup.spec))]
    begin_or_resume(groups, resumed)
    return groups


class Group:
    """Trains its members update by update and writes their files; see `group.TrainedGroup`."""

    def __init__(self, setup: MemberSetup, members: Sequence[MemberSpec], *, make_batch: Callable[..., Any]) -> None:
        self._setup, self._members = setup, list(members)
        self.names = [member.name for member in members]
        rows = len(members) * members[0].hyperparameters.num_envs
        spec, card = setup.spec, setup.card
        fields = fields_read(spec.reward_source, setup.module, card)
        self._environment = make_batch(
            spec.environment, rows, num_threads=spec.threads, options=setup.options, fields=fields
        )
        self._lanes = LaneUpdate(members, environment=self._environment, threads=spec.threads)
        self.ppo = PPO(
            members,
            environment=self._environment,
            # A value that is not finite stops only its member; an exception would end all.
            reward=WatchedReward(setup.module, card, rows, on_not_finite="return"),
            optimise=self._lanes,
        )
        self._metrics: list[MemberMetrics] = []
        self._monitors = [Monitor(steps=spec.steps_per_member) for _ in members]
        self._latest: list[Metrics] = [{} for _ in members]
        self._reported: set[int] = set()
        self._divergences = 0

    def begin(self) -> None:
        """Open the metrics of a new run."""
        self._open_metrics({})

    @property
    def steps(self) -> int:
        """Environment steps of each member."""
        return self.ppo.env.steps

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.ppo.updates

    @property
    def all_stopped(self) -> bool:
        """Whether no member can continue."""
        return len(self.stops) == len(self._members)

    @property
    def stops(self) -> list[Stop]:
        """The members that were stopped, and why."""
        return list(self.ppo.env.faults.stops.values())

    def advance(self, *, began: float) -> Outcome:
        """Do one rollout and update, and write the metrics.

        :param began: `time.monotonic` at the start of training, for the rows' ``seconds``.
        """
        self._lanes.begin_compiling()  # while the first rollout is collected
        rows = self.ppo.iterate()
        outcome = Outcome()
        for index, row in enumerate(rows):
            row["seconds"] = time.monotonic() - began
            row["compile_seconds"] = self._lanes.compile_seconds
            self._latest[index] = row
            if index in self._reported:
                continue
            self._metrics[index].add(row)
            if index in self.ppo.env.faults.stops:  # its figures from here on, such as the entropy, mean nothing
                continue
            for warn in self._monitors[index].see(row):
                outcome.warnings.append(WarningMessage(warn.reason, warn.message, self.names[index]))
        for index, stop in self.ppo.env.faults.stops.items():
            if index not in self._reported:
                self._reported.add(index)
                outcome.stopped.append(stopped_message(self.names[index], stop))
        before, self._divergences = self._divergences, self._environment.divergences
        outcome.warnings.extend(divergence_warnings(before, self._divergences))
        return outcome

    def states(self) -> list[MemberState]:
        """Return each member's latest metrics; a member that was stopped has the steps until then."""
        stopped = self.ppo.env.faults.stops
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
        stopped = self.ppo.env.faults.stops
        return [
            MemberPolicy(self.names[i], self.steps, self._policy_card(i).to_dict(), snapshot.policy_arrays(self.ppo, i))
            for i in range(len(self._members))
            if i not in stopped
        ]

    def _policy_card(self, index: int) -> PolicyCard:
        member, card = self._members[index], self._setup.card
        mean, var, count = snapshot.return_statistics(self.ppo, index)
        return PolicyCard(
            environment=card.id,
            observation_size=card.observation_size,
            **action_facts(self._environment),
            hidden_sizes=member.hyperparameters.hidden_sizes,
            normalize_observation=member.hyperparameters.normalize_observation,
            epsilon=EPSILON,
            clip=member.hyperparameters.observation_clip,
            environment_options=dict(self._setup.options.given()),
            statistics={
                "obs_count": float(self.ppo.env.observations.moments.count[index]),
                "return_mean": mean,
                "return_var": var,
                "return_count": count,
                "discount": member.hyperparameters.discount,
                "reward_clip": member.hyperparameters.reward_clip,
            },
            provenance={
                **self._setup.spec.provenance,
                "member": member.name,
                "seed": member.seed,
                "env_steps": self.steps,
                "hyperparameters": member.hyperparameters.to_dict(),
                "versions": versions_of(*_PACKAGES),
            },
        )

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with to be resumed."""
        return facts_of(self._setup, self._members)

    def snapshot(self) -> Arrays:
        """Return the state at this update boundary, metrics included."""
        rows = {f"metrics/{i}": metrics.packed() for i, metrics in enumerate(self._metrics)}
        return {**{f"ppo/{name}": value for name, value in snapshot.take(self.ppo).items()}, **rows}

    def restore(self, arrays: Arrays) -> None:
        """Continue from a snapshot."""
        start = "ppo/"
        snapshot.restore(self.ppo, {n[len(start) :]: value for n, value in arrays.items() if n.startswith(start)})
        self._reported = set(self.ppo.env.faults.stops)
        self._divergences = self._environment.divergences
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
