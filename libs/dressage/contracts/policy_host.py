"""The trusted side of a code policy: sends observations to its process, and bounds its time.

Nothing that the process sends is believed: actions are checked again, texts are shortened. A process that breaks a limit or the
protocol is ended, and `PolicyFailure` names the reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.execute import line_of_stack
from dressage.contracts.failures import CheckFailure, PolicyError, reported_error, shorten
from dressage.contracts.spaces import Spaces
from dressage.errors import DeadlineExceeded, DressageError, InvalidArgument
from dressage.sandbox.limits import GIB, MIB, Limits
from dressage.sandbox.pipe import ChannelClosed, ProtocolError
from dressage.sandbox.process import Exit, SandboxProcess

PLAY = "dressage.contracts.policy_process:play"
FEEDBACK = "dressage.contracts.policy_process:feedback"
POLICY_LIMITS = Limits(memory_bytes=GIB, file_bytes=MIB, open_files=64, processes=32, scratch_bytes=16 * MIB)
"""Limits of a policy's process besides those of its time."""
MAX_MESSAGE_BYTES = 64 * MIB
PRELOAD = ("dressage.contracts.policy_process",)

REASONS: Mapping[str, str] = {
    "memory_budget": "POLICY_OUT_OF_MEMORY",
    "time_budget": "POLICY_TOO_SLOW",
    "sandbox": "POLICY_FORBIDDEN_CALL",
    "action-type": "POLICY_BAD_ACTION",
    "action-shape": "POLICY_BAD_ACTION",
    "action-finite": "POLICY_BAD_ACTION",
    "action-range": "POLICY_BAD_ACTION",
    "exception": "POLICY_RAISED",
    "crash": "POLICY_CRASHED",
}
"""Reason of a failure by the broken rule; ``POLICY_INVALID`` for the rules of the lint."""

_START_SECONDS = 60.0
"""For an interpreter to start on a busy machine."""
_SLACK_SECONDS = 1.0
"""For the transfer of a message, and the progress messages of a batch."""
_STARTS = 10.0
_MAX_EPISODE = 1 << 30

Array = NDArray[Any]


@dataclass(frozen=True)
class PlayLimits:
    """Limits of a code policy in seconds.

    :param act_seconds: one action. Loading the policy, and starting an episode, may take ten times as long.
    :param episode_seconds: construction, reset and all actions of one episode.
    :param candidate_seconds: all episodes together, as waited for.
    """

    act_seconds: float = 1.0
    episode_seconds: float = 60.0
    candidate_seconds: float = 300.0


class PolicyFailure(DressageError):
    """A code policy broke its contract or a limit.

    :param failure: rule, line, message and what was seen.
    :param episode: index of the episode; -1 if none is concerned.
    """

    default_reason = "POLICY_INVALID"

    def __init__(self, failure: CheckFailure, *, episode: int = -1) -> None:
        super().__init__(str(failure), reason=REASONS.get(failure.rule, "POLICY_INVALID"))
        self.failure, self.episode = failure, episode


class TimeBudget:
    """Seconds of all episodes of a candidate, shared by the processes that play it.

    :param seconds: how many there are.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._spent = seconds, 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds that are left."""
        return self.seconds - self._spent

    def spend(self, seconds: float) -> None:
        """Count seconds as spent."""
        self._spent += seconds


class _Host:
    """One process with generated code."""

    def __init__(self, process: SandboxProcess, budget: TimeBudget) -> None:
        self._process, self._budget = process, budget

    def load(self, source: str, spaces: Spaces, *, limits: PlayLimits, seed: int = 0, lint: bool = True) -> None:
        """Load the source.

        :param seed: seed of the process's global random streams.
        :param lint: whether the process refuses what the lint does not allow.
        :raises PolicyFailure: the source breaks the contract.
        """
        self._spaces, self._limits = spaces, limits
        # Before the source is sent: the start of an interpreter is not the policy's time.
        self._exchange(None, "ready", _START_SECONDS)
        request = {
            "source": source,
            "spaces": spaces.to_dict(),
            "act_seconds": limits.act_seconds,
            "episode_seconds": limits.episode_seconds,
            "seed": seed,
            "lint": lint,
        }
        self._exchange(request, "loaded", _STARTS * limits.act_seconds, action="loading it")

    def _exchange(
        self, request: Mapping[str, Any] | None, expected: str, seconds: float, *, action: str = "its process"
    ) -> dict[str, Any]:
        """Send a request, and return the reply that has the key ``expected``.

        :param seconds: until the reply, or from one progress message to the next.
        """
        begin = time.monotonic()
        try:
            if request is not None:
                self._process.channel.send(request, timeout=_SLACK_SECONDS + seconds)
            return self._reply(expected, begin, seconds, action)
        except DeadlineExceeded as error:
            raise self._too_slow(action, begin, seconds) from error
        except ProtocolError as error:
            self._process.kill()
            raise _failure("crash", "it sent no valid message; leave the process alone.", seen=error.message) from error
        except ChannelClosed as error:
            raise self._exit_failure(self._process.wait(10.0) or self._process.kill()) from error
        finally:
            if request is not None:
                self._budget.spend(time.monotonic() - begin)

    def _reply(self, expected: str, begin: float, seconds: float, action: str) -> dict[str, Any]:
        while True:
            left = self._budget.seconds_left - (time.monotonic() - begin)
            reply = self._process.channel.recv(timeout=max(0.001, min(seconds + _SLACK_SECONDS, left)))
            if "failure" in reply:
                raise _reply_failure(reply)
            if expected in reply:
                return reply
            if reply.keys() != {"progress"}:
                raise ProtocolError(f"the reply has no {expected}")

    def _too_slow(self, action: str, begin: float, seconds: float) -> PolicyFailure:
        """End a process that did not answer; return the failure with the line that it was at."""
        with contextlib.suppress(ProcessLookupError):
            # faulthandler writes the stacks on this signal, also while C code holds the interpreter's lock.
            os.kill(self._process.pid, signal.SIGUSR1)
        self._process.wait(0.2)
        ended = self._process.kill()
        line = line_of_stack(ended.stderr_tail)
        waited = time.monotonic() - begin
        if self._budget.seconds_left - waited <= 0:
            message = f"all episodes took longer than {self._budget.seconds:g} s; make the policy faster."
        else:
            message = f"{action} took longer than {seconds:g} s; make it faster."
        return _failure("time_budget", message, line=line, seen=f"ended after {waited:.1f} s")

    def _exit_failure(self, ended: Exit) -> PolicyFailure:
        """Return the failure of a process that ended by itself or by a limit."""
        line = line_of_stack(ended.stderr_tail)
        if ended.kind == "memory":
            return _failure(
                "memory_budget", "it used more memory than a policy has; use less.", line=line, seen=ended.reason
            )
        if ended.kind == "killed" and ended.bound:
            message = "it was ended for what it did in the sandbox; use obs and the allowed modules only."
            return _failure("sandbox", message, line=line, seen=ended.reason)
        message = "its process ended before the episodes did; do not end or break the interpreter."
        return _failure("crash", message, line=line, seen=ended.reason or "it ended without an error")


class PolicyHost(_Host):
    """Plays episodes of one policy in a process with the target `PLAY`. One thread may use it at a time.

    :param process: owned by the caller, who closes it.
    """

    def __init__(self, process: SandboxProcess, budget: TimeBudget) -> None:
        super().__init__(process, budget)
        self.acts, self.seconds = 0, 0.0
        """Actions so far, and the seconds that the policy took for them."""
        self._running: list[int] = []

    def begin(self, count: int) -> None:
        """Start episodes 0 to ``count`` - 1, each with an instance of its own.

        :raises PolicyFailure: a constructor or ``reset()`` fails.
        """
        self._exchange({"begin": count}, "begun", _STARTS * self._limits.act_seconds, action="Policy() and reset()")
        self._running = list(range(count))

    def act(self, observations: Array, episodes: Sequence[int]) -> Array:
        """Return the actions of the running episodes: (n,) int64, or (n, A) float32 within the bounds.

        :param observations: (n, D) float64, one-hot where they are discrete.
        :param episodes: (n,) their indices, ascending; an episode that is left out has ended.
        :raises PolicyFailure: the policy fails.
        """
        request: dict[str, Any] = {"observations": observations}
        if list(episodes) != self._running:
            self._running = list(episodes)
            request["episodes"] = np.asarray(episodes, np.int64)
        begin = time.monotonic()
        reply = self._exchange(request, "actions", self._limits.act_seconds, action="act()")
        waited = time.monotonic() - begin
        try:
            actions = self._spaces.check_reply(reply["actions"], len(episodes))
        except InvalidArgument as error:
            self._process.kill()
            raise _failure("crash", "it sent no valid message; leave the process alone.", seen=error.message) from error
        seconds = reply.get("seconds")
        # Its own clock leaves out the transfer; it may claim to be faster than it is, but not slower.
        own = seconds if isinstance(seconds, float) and 0 <= seconds <= waited else waited
        self.acts, self.seconds = self.acts + len(episodes), self.seconds + own
        return actions


class FeedbackHost(_Host):
    """Summarises episodes by a feedback class in a process with the target `FEEDBACK`."""

    def summarize(self, observations: Array) -> str:
        """Return the text of one episode, at most 500 characters.

        :param observations: (T+1, D) float64.
        :raises PolicyFailure: the feedback class fails.
        """
        request = {"observations": observations}
        reply = self._exchange(request, "text", _STARTS * self._limits.act_seconds, action="summarize_trajectory()")
        return shorten(reply["text"], MAX_FEEDBACK)


MAX_FEEDBACK = 500
"""Characters of a summary."""


def _failure(rule: str, message: str, *, line: int = 0, seen: str = "") -> PolicyFailure:
    return PolicyFailure(CheckFailure(rule, line, shorten(message), shorten(seen)))


def _reply_failure(reply: Mapping[str, Any]) -> PolicyFailure:
    """Return the failure that a process reported."""
    error, episode = reported_error(reply, PolicyError), reply.get("episode")
    return PolicyFailure(
        error.failure, episode=episode if type(episode) is int and 0 <= episode <= _MAX_EPISODE else -1
    )
