"""The learner: a sandboxed process that trains a run's members on a generated reward.

It has no network and no credentials. Its input is a `TrainSpec`; its output goes to its scratch folder and, as messages, to
the supervisor. Members of equal shape train as one group; groups take turns, and the one that is furthest behind is next.

After each update the whole state is kept in memory as a snapshot. A thread listens for ``snapshot`` requests and writes
that snapshot, so that an answer never waits for an update in progress. Training resumes from it to the same bits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from dressage.contracts.device import RULE
from dressage.contracts.failures import RewardError
from dressage.contracts.reward import load_reward
from dressage.envs import EnvOptions, make_batch
from dressage.envs.cards import EnvironmentCard
from dressage.envs.packs.batched import link
from dressage.errors import DressageError, InvalidArgument, Unavailable
from dressage.limits import REWARD_NOT_TRACEABLE
from dressage.sandbox.pipe import Channel, ChannelClosed, companion_channel

from dressage_trainer import checkpoints
from dressage_trainer.backends.group import MemberSetup, TrainedGroup, minibatch_warnings, stopped_message
from dressage_trainer.checkpoints import Snapshot
from dressage_trainer.messages import (
    NO_ROOM,
    CheckpointMessage,
    DoneMessage,
    EvaluateMessage,
    FailedMessage,
    MemberPolicy,
    MemberStart,
    MemberState,
    MemberStoppedMessage,
    MemberTask,
    Message,
    ProgressMessage,
    TrainSpec,
    WarningMessage,
)

_PROGRESS_SECONDS = 0.5
_SPEC_TIMEOUT = 60.0
_WAIT_SECONDS = 3600.0
"""Longest wait for the judgments that decide whether training continues."""


def learn(channel: Channel) -> None:
    """Sandbox target: receive a `TrainSpec`, train, and report until `DoneMessage` or `FailedMessage`."""
    message = channel.recv(timeout=_SPEC_TIMEOUT)
    try:
        spec = spec_from_message(message)
        Training(spec, channel, root=Path.cwd()).run()
    except ChannelClosed:
        # The supervisor has ended: there is no process to report to, and no reason to continue.
        return
    except RewardError as error:
        reason = REWARD_NOT_TRACEABLE if error.rule == RULE else "REWARD_ERROR"
        channel.send(FailedMessage(reason, error.message, generated_code=True).to_dict())
    except DressageError as error:
        channel.send(FailedMessage(error.reason, error.message).to_dict())
    except OSError as error:
        reason = "OUT_OF_DISK" if error.errno in NO_ROOM else "LEARNER_IO"
        channel.send(FailedMessage(reason, f"the learner's files: {error}").to_dict())


def spec_from_message(message: Mapping[str, Any]) -> TrainSpec:
    """Return the typed spec of a received dict.

    :raises InvalidArgument: for a message that is no training spec.
    """
    values = {name: value for name, value in message.items() if name != "type"}
    try:
        values["members"] = tuple(_member_task(member) for member in values["members"])
        spec = TrainSpec(**values)
    except (TypeError, KeyError) as error:
        raise InvalidArgument(f"not a training spec: {error}", field="spec") from error
    if not spec.members:
        raise InvalidArgument(field="members", value=0, expected="at least one member")
    if spec.steps_per_member < 1:
        raise InvalidArgument(field="steps_per_member", value=spec.steps_per_member, expected=">= 1")
    return spec


def _member_task(values: Mapping[str, Any]) -> MemberTask:
    start = values.get("start")
    return MemberTask(**{**values, "start": None if start is None else MemberStart(**start)})


def _build_groups(setup: MemberSetup, resumed: Snapshot | None) -> list[TrainedGroup]:
    """Build the backend's groups. Backends are imported here, since each imports a heavy library."""
    spec = setup.spec
    if (spec.backend == "sb3" or spec.algorithm == "sac") and any(member.start is not None for member in spec.members):
        raise InvalidArgument(
            field="members.start", value="a policy", expected="none, with the backend sb3 or the algorithm sac"
        )
    if spec.backend == "sb3":
        from dressage_trainer.backends.sb3.groups import build_groups as build_sb3

        return list(build_sb3(setup, make_batch=make_batch, resumed=resumed))
    from dressage_trainer.backends.stacked import build_groups

    return list(build_groups(setup, make_batch=make_batch, resumed=resumed))


class Training:
    """One run's training, from the spec to the last message.

    :param root: the scratch folder.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self,
        spec: TrainSpec,
        channel: Channel,
        *,
        root: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._channel, self._root, self._clock = spec, channel, root, clock
        options = EnvOptions.from_dict(spec.options)
        self._card: EnvironmentCard = options.check(spec.environment)
        if self._card.pack:
            link.use(companion_channel())
        module = load_reward(spec.reward_source, self._card)
        self._send(ProgressMessage(activity="compiling"))
        self._groups = _build_groups(
            MemberSetup(
                spec=spec,
                card=self._card,
                options=options,
                module=module,
                root=root,
            ),
            self._read_checkpoint(),
        )
        self._writing = threading.Lock()
        self._last_progress = self._last_checkpoint = clock()
        self._steps_at_start = self._total_steps()
        self._since_progress = (clock(), self._steps_at_start)
        self._written = -1
        self._unsaved = ""
        self._parts: dict[int, dict[str, Any]] = {}
        """Of the last snapshot, by group."""
        self._snapshot = self._take_snapshot(self._groups)
        self._gone = threading.Event()
        self._granted = spec.granted_steps or spec.last_step
        self._news = threading.Condition()
        """Notified when it may continue, or the supervisor is gone."""

    def _read_checkpoint(self) -> Snapshot | None:
        """Return the newest checkpoint that can be used; None if training begins or has to restart."""
        if not self._spec.resume:
            return None
        candidates = [self._spec.resume, *self._spec.resume_earlier]
        snapshot, problems = checkpoints.read_newest(self._root, candidates)
        for relative in candidates:  # they are read, and the next checkpoints need their space
            (self._root / relative).unlink(missing_ok=True)
        for problem in problems:
            self._send(WarningMessage(reason="CHECKPOINT_CORRUPT", message=problem))
        if problems:
            then = f"continues from the one before, update {snapshot.update}" if snapshot else "restarts"
            self._send(WarningMessage(reason="CHECKPOINT_FALLBACK", message=f"training {then}"))
        return snapshot

    def run(self) -> None:
        """Train to the end; send progress, evaluations and checkpoints when they are due, and the final policies."""
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        began = self._clock()
        try:
            if not self._spec.resume:  # otherwise the attempt before sent them
                for warning in minibatch_warnings(self._spec):
                    self._send(warning)
            for resumed in self._groups:  # the attempt before may have ended before it sent them
                for stop in resumed.stops:
                    self._send(stopped_message(resumed.names[stop.member], stop))
            while (group := self._next_group()) is not None:
                if self._gone.is_set():
                    raise ChannelClosed("the supervisor is gone")
                if group.steps >= self._granted:
                    self._wait_until_granted(group.steps)
                    continue
                before = group.steps
                outcome = group.advance(began=began)
                for stopped in outcome.stopped:
                    self._send(stopped)
                for warning in outcome.warnings:
                    self._send(warning)
                snapshot = self._take_snapshot([group])
                self._send_evaluation(group, before)
                # Only now: an answer to a request must not precede the evaluation, which a resume would not repeat.
                self._snapshot = snapshot
                self._send_due()
            self._finish()
        finally:
            for group in self._groups:
                group.close()

    def _next_group(self) -> TrainedGroup | None:
        """Return the group that is furthest behind; ties go to the first, so that a resume takes the same turns."""
        pending = [g for g in self._groups if g.steps < self._spec.last_step and not g.all_stopped]
        return min(pending, key=lambda g: g.steps, default=None)

    def _wait_until_granted(self, steps: int) -> None:
        """Wait until training may continue beyond these steps. The state is stored first: a waiting learner may be ended.

        :raises ChannelClosed: if the supervisor is gone.
        :raises DressageError: if no word comes.
        """
        now = self._last_progress = self._last_checkpoint = self._clock()
        self._send_progress(now, activity="waiting")
        self._checkpoint(requested=False)
        with self._news:
            decided = self._news.wait_for(lambda: self._gone.is_set() or self._granted > steps, _WAIT_SECONDS)
        if not decided:
            message = f"it was not decided within {_WAIT_SECONDS / 60:.0f} minutes whether training continues"
            raise Unavailable(message, reason="NO_DECISION")
        self._since_progress = (self._clock(), self._total_steps())

    def _send_evaluation(self, group: TrainedGroup, before: int) -> None:
        # An update may pass several marks at once; one evaluation then serves them all.
        if self._marks(before, group.steps):
            self._send(EvaluateMessage(policies=tuple(group.policies())))

    def _send_due(self) -> None:
        now = self._clock()
        if now - self._last_progress >= _PROGRESS_SECONDS:
            self._last_progress = now
            self._send_progress(now)
        if now - self._last_checkpoint >= self._spec.checkpoint_seconds:
            self._last_checkpoint = now
            self._checkpoint(requested=False)

    def _marks(self, before: int, now: int) -> bool:
        """Whether one of the steps at which policies are evaluated during training is passed; final ones follow at the end."""
        expected, count = self._spec.steps_per_member, self._spec.evaluations
        first = before * count // expected  # its mark is not above `before`
        marks = (expected * k // count for k in range(max(1, first), now * count // expected + 2))
        return any(before < mark <= now and mark < self._spec.last_step for mark in marks)

    def _send_progress(self, now: float, *, activity: str = "training") -> None:
        then, steps = self._since_progress
        total = self._total_steps()
        self._since_progress = (now, total)
        states: list[MemberState] = [state for group in self._groups for state in group.states()]
        rate = (total - steps) / max(now - then, 1e-9)
        self._send(ProgressMessage(activity=activity, steps_per_second=rate, members=tuple(states)))

    def _total_steps(self) -> int:
        return sum(group.steps * len(group.names) for group in self._groups)

    def _take_snapshot(self, advanced: Collection[TrainedGroup]) -> Snapshot | None:
        """Return the state at this update boundary; None if the reward's memory cannot be saved.

        :param advanced: groups that changed since the last snapshot; the others are not copied again.
        """
        if self._unsaved:
            return None
        try:
            for index, group in enumerate(self._groups):
                if group in advanced:
                    self._parts[index] = {f"group{index}/{name}": value for name, value in group.snapshot().items()}
        except RewardError as error:
            if error.rule != "state":
                raise
            # A user's per-step reward may hold anything. It can be trained, but not resumed.
            self._unsaved = error.message
            self._send(WarningMessage(reason="CHECKPOINT_UNAVAILABLE", message=self._unsaved))
            return None
        return Snapshot(
            update=sum(group.updates for group in self._groups),
            env_step=max(group.steps for group in self._groups),
            facts={"groups": [group.facts() for group in self._groups]},
            arrays={name: value for part in self._parts.values() for name, value in part.items()},
        )

    def _checkpoint(self, *, requested: bool) -> None:
        """Write the snapshot of the last update boundary; a failure is reported, and training continues."""
        # Two threads write checkpoints: the training on its schedule, the listener on request.
        with self._writing:
            snapshot = self._snapshot
            if snapshot is None:
                if requested:
                    self._send(WarningMessage(reason="CHECKPOINT_UNAVAILABLE", message=self._unsaved))
                return
            try:
                path = checkpoints.path_of(snapshot.update)
                if self._written != snapshot.update:
                    path = checkpoints.write(self._root, snapshot)
                    self._written = snapshot.update
            except OSError as error:
                text = f"no checkpoint could be written at update {snapshot.update}: {error.strerror or error}"
                self._send(WarningMessage(reason="CHECKPOINT_FAILED", message=text))
                return
            self._send(
                CheckpointMessage(path=path, update=snapshot.update, env_step=snapshot.env_step, requested=requested)
            )

    def _listen(self) -> None:
        """Answer snapshot requests and take extensions until the channel closes."""
        while True:
            try:
                message = self._channel.recv(timeout=None)
                if message.get("type") == "snapshot":
                    self._checkpoint(requested=True)
                elif message.get("type") == "extend":
                    with self._news:
                        self._granted = max(self._granted, int(message["steps"]))
                        self._news.notify()
            except DressageError:
                # Closed, or broken by a malformed message: in both cases there is no supervisor any more.
                with self._news:
                    self._gone.set()
                    self._news.notify()
                return

    def _finish(self) -> None:
        policies: list[MemberPolicy] = [policy for group in self._groups for policy in group.policies()]
        if not policies:
            stops = [stop for group in self._groups for stop in group.stops]
            by_reward = [stop for stop in stops if stop.cause == "reward"]
            message = f"no member could continue: {[*by_reward, *stops][0].message}"
            self._send(FailedMessage("ALL_MEMBERS_STOPPED", message, generated_code=bool(by_reward)))
            return
        self._send_progress(self._clock())
        self._send(
            DoneMessage(
                env_steps_total=self._total_steps() - self._steps_at_start,
                policies=tuple(policies),
            )
        )

    def _send(self, message: Message | MemberStoppedMessage) -> None:
        self._channel.send(message.to_dict())
