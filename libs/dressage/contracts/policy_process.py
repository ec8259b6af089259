"""Sandbox targets that play a code policy, and that summarise episodes by a feedback class.

A policy's process sees observations and gives actions. It has no environment, no reward and no other candidate. One message
has the observations of all running episodes, and one reply their actions; while a batch takes long, ``progress`` messages show
that single actions end in time, so that the trusted side can distinguish a slow batch from an action that hangs.
"""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dressage.contracts.failures import PolicyError
from dressage.contracts.policy import load_class, new_episode, summarize, translate
from dressage.contracts.policy_lint import lint_feedback, lint_policy
from dressage.contracts.spaces import Spaces
from dressage.sandbox.pipe import Channel, ChannelClosed

BEAT_SECONDS = 0.25
"""Interval of progress messages."""
STARTS = 10.0
"""Loading a policy, and starting one episode of it, may take this multiple of an action's limit."""


class _Policy:
    """The policy of one candidate, and its running episodes."""

    def __init__(self, request: Mapping[str, Any], beat: Callable[[], None]) -> None:
        source, self._beat = str(request["source"]), beat
        if request["lint"]:
            _refuse(lint_policy(source))
        self._spaces = Spaces.from_dict(request["spaces"])
        self._act_seconds, self._episode_seconds = float(request["act_seconds"]), float(request["episode_seconds"])
        self._class = load_class(source, "Policy", owner="policy", seed=int(request["seed"]))
        self._acts: list[Any] = []
        self._spent = np.zeros(0)
        self._running: Any = np.zeros(0, np.int64)
        self._chosen: list[Any] = []

    def begin(self, count: int) -> dict[str, Any]:
        """Start episodes 0 to ``count`` - 1."""
        self._acts, self._spent, self._running = [], np.zeros(count), np.zeros(0, np.int64)
        begin = last = time.perf_counter()
        beat = last + BEAT_SECONDS
        for index in range(count):
            self._acts.append(_of_episode(index, lambda: new_episode(self._class)))
            now = time.perf_counter()
            self._spent[index] = now - last
            if now - last > STARTS * self._act_seconds:
                raise _slow("Policy() and reset()", now - last, STARTS * self._act_seconds, index)
            last = now
            if now > beat:
                self._beat()
                beat = now + BEAT_SECONDS
        self._run(np.arange(count))
        return {"begun": count, "seconds": last - begin}

    def _run(self, episodes: Any) -> None:
        """Set the episodes that run; those that ended are dropped."""
        running = set(episodes.tolist())
        for index in self._running.tolist():
            if index not in running:
                self._acts[index] = None
        self._running, self._chosen = episodes, [self._acts[index] for index in episodes.tolist()]

    def act(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the actions of the running episodes.

        :param request: ``observations`` (n, D); ``episodes`` (n,), if other episodes run than before.
        """
        if request.get("episodes") is not None:
            self._run(request["episodes"])
        rows = self._spaces.rows(request["observations"])
        answers: list[Any] = []
        times = self._call(rows, answers)
        seconds = np.diff(times)
        self._spent[self._running] += seconds
        self._check_times(seconds)
        try:
            actions = self._spaces.actions(answers)
        except PolicyError as error:
            error.row = int(self._running[error.row or 0])
            raise
        return {"actions": actions, "seconds": float(times[-1] - times[0])}

    def _call(self, rows: Sequence[Any], answers: list[Any]) -> list[float]:
        """Append the answer for each row; return when each began, and when the last ended."""
        clock = time.perf_counter
        now = clock()
        beat, times = now + BEAT_SECONDS, [now]
        add, mark = answers.append, times.append
        try:
            for act, row in zip(self._chosen, rows, strict=True):
                add(act(row))
                now = clock()
                mark(now)
                if now > beat:
                    self._beat()
                    beat = now + BEAT_SECONDS
        except BaseException as error:
            failure = translate(error, action="act()")
            failure.row = int(self._running[len(answers)])
            raise failure from error
        return times

    def _check_times(self, seconds: Any) -> None:
        slowest = int(seconds.argmax())
        if seconds[slowest] > self._act_seconds:
            raise _slow("act()", seconds[slowest], self._act_seconds, int(self._running[slowest]))
        longest = int(self._spent.argmax())
        if self._spent[longest] > self._episode_seconds:
            raise _slow("an episode", self._spent[longest], self._episode_seconds, longest)


def _refuse(violations: Iterable[Any]) -> None:
    for first in violations:
        raise PolicyError(first.rule, first.message, line=first.line)


def _of_episode(index: int, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except PolicyError as error:
        error.row = index
        raise


def _slow(action: str, seconds: float, limit: float, episode: int) -> PolicyError:
    message = f"{action} took longer than {limit:g} s; make it faster."
    return PolicyError("time_budget", message, seen=f"{seconds:.2f} s", row=episode)


def play(channel: Channel) -> None:
    """Sandbox target: load the policy of the first request, then start episodes and act until the channel closes.

    Requests: ``source``, ``spaces``, ``act_seconds``, ``episode_seconds``, ``seed`` and ``lint``; then ``begin`` (a number of
    episodes), or ``observations`` and perhaps ``episodes``. Replies: ``ready``, then one for each request or ``progress``
    before it. ``failure`` is the last reply.
    """

    def serve() -> None:
        policy = _Policy(channel.recv(timeout=None), lambda: channel.send({"progress": True}))
        channel.send({"loaded": True})
        while True:
            request = channel.recv(timeout=None)
            channel.send(policy.begin(int(request["begin"])) if "begin" in request else policy.act(request))

    _serve(channel, serve)


def feedback(channel: Channel) -> None:
    """Sandbox target: load the feedback class of the first request, then summarise one episode for each request.

    Requests: ``source``, ``spaces``, ``seed`` and ``lint``; then ``observations`` (T+1, D). Replies: ``ready``, ``loaded``,
    then ``text``; ``failure`` is the last reply.
    """

    def serve() -> None:
        request = channel.recv(timeout=None)
        if request["lint"]:
            _refuse(lint_feedback(str(request["source"])))
        spaces = Spaces.from_dict(request["spaces"])
        feedback_class = load_class(str(request["source"]), "Feedback", owner="feedback", seed=int(request["seed"]))
        channel.send({"loaded": True})
        while True:
            rows = spaces.rows(channel.recv(timeout=None)["observations"])
            channel.send({"text": summarize(feedback_class, list(rows))})

    _serve(channel, serve)


def _serve(channel: Channel, serve: Callable[[], None]) -> None:
    # The trusted side sends this signal to an action that hangs, so that its line is known.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    channel.send({"ready": True})
    try:
        serve()
    except ChannelClosed:
        return
    except PolicyError as error:
        channel.send({"failure": error.failure.to_dict(), "episode": -1 if error.row is None else error.row})
