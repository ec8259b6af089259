"""Plays code candidates: a player steps the environments, a process of the candidate's own chooses the actions.

The supervisor carries observations and actions between the two, so that neither can reach the other. A thread plays one part of
a candidate's episodes in lockstep.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dressage.contracts.hidden import HIDDEN
from dressage.contracts.policy_host import (
    MAX_MESSAGE_BYTES,
    POLICY_LIMITS,
    PRELOAD,
    FeedbackHost,
    PlayLimits,
    PolicyFailure,
    PolicyHost,
    TimeBudget,
)
from dressage.contracts.spaces import Spaces
from dressage.errors import Internal
from dressage.sandbox.process import SandboxProcess
from numpy.typing import NDArray

from dressage_trainer.evaluation.player_pool import Player
from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec

SANDBOX = SandboxSpec(limits=POLICY_LIMITS, hidden=HIDDEN, preload=PRELOAD, max_message_bytes=MAX_MESSAGE_BYTES)
"""How the process of a policy, or of a feedback class, is started."""
Array = NDArray[Any]


@dataclass(frozen=True)
class PlayedPart:
    """Some episodes of one candidate.

    :param successes: empty where the environment gives none.
    :param actions: actions of each episode; empty unless they were asked for.
    :param observations: observations of each episode; empty unless they were asked for.
    :param acts: number of actions.
    :param act_seconds: seconds that the policy took for them.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool, ...]
    actions: tuple[Array, ...]
    observations: tuple[Array, ...]
    acts: int
    act_seconds: float


@dataclass(frozen=True)
class CodeTask:
    """What the parts of a candidate have in common.

    :param source: source of the policy.
    :param options: options of the environment that are set, by name.
    :param keep_actions: whether a part returns actions.
    :param keep_observations: whether a part returns observations.
    """

    source: str
    environment: str
    options: Mapping[str, Any]
    spaces: Spaces
    limits: PlayLimits
    keep_actions: bool = False
    keep_observations: bool = False

    def seed(self, start: int) -> int:
        """Return the seed of a part's global random streams. The seeds of the episodes cannot be computed from it."""
        return int.from_bytes(hashlib.sha256(f"{start}\n{self.source}".encode("utf-8", "replace")).digest()[:4], "big")


class GeneratedProcess:
    """A sandboxed process of one policy or feedback class, which `stop` ends from another thread."""

    def __init__(self, sandboxes: Sandboxes, target: str) -> None:
        self._sandboxes, self._target = sandboxes, target
        self._process: SandboxProcess | None = None
        self._lock, self._stopped = threading.Lock(), False

    def __enter__(self) -> SandboxProcess:
        process = self._sandboxes.start(SANDBOX, self._target)
        with self._lock:
            self._process = process
            # `stop` came while this thread started the process.
            if self._stopped:
                process.kill()
        return process

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._sandboxes.end(self._process)

    def stop(self) -> None:
        """End the process, now or as soon as it starts."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


def play_part(
    task: CodeTask,
    seeds: Sequence[int],
    *,
    start: int,
    budget: TimeBudget,
    player: Player,
    process: GeneratedProcess,
    batch: int | None = None,
) -> PlayedPart:
    """Play some episodes of a candidate in one process of its policy; blocks.

    :param start: index of the first of them among the candidate's.
    :param budget: time of the candidate.
    :param batch: episodes in lockstep, at most; one batch follows another. None: all.
    :raises PolicyFailure: the policy breaks its contract or a limit; ``episode`` is an index into ``seeds``.
    :raises DressageError: the player fails.
    """
    size = batch or max(1, len(seeds))
    with player.conversation(), process as running:
        host = PolicyHost(running, budget)
        host.load(task.source, task.spaces, limits=task.limits, seed=task.seed(start))
        played = []
        for first in range(0, len(seeds), size):
            try:
                played.append(_play_batch(task, seeds[first : first + size], player=player, host=host))
            except PolicyFailure as error:
                if error.episode >= 0:
                    error.episode += first
                raise
    return PlayedPart(
        returns=tuple(value for part in played for value in part.returns),
        lengths=tuple(value for part in played for value in part.lengths),
        successes=tuple(value for part in played for value in part.successes),
        actions=tuple(rows for part in played for rows in part.actions),
        observations=tuple(rows for part in played for rows in part.observations),
        acts=host.acts,
        act_seconds=host.seconds,
    )


def _play_batch(task: CodeTask, seeds: Sequence[int], *, player: Player, host: PolicyHost) -> PlayedPart:
    """Play episodes in lockstep; the counts of the host are those of all batches so far."""
    host.begin(len(seeds))
    request = {
        "environment": task.environment,
        "options": dict(task.options),
        "seeds": list(seeds),
        "observed": task.keep_observations,
    }
    reply = player.ask({"lockstep": "begin", **request})
    while len(reply["episodes"]):
        actions = host.act(reply["observations"], reply["episodes"].tolist())
        reply = player.ask({"lockstep": "step", "actions": actions})
    return _part(task, reply, player, host, len(seeds))


def replay(task: CodeTask, seed: int, actions: Array, *, player: Player, target: Path) -> tuple[Path | None, float]:
    """Record the rollout of an episode by playing its actions again on the reference environment; blocks.

    :param target: where to write it.
    :returns: the file and its return; None if the environment does not repeat the episode.
    :raises DressageError: the player fails.
    """
    request = {"environment": task.environment, "options": dict(task.options), "seed": seed, "actions": actions}
    with player.conversation():
        reply = player.ask({"lockstep": "replay", "folder": player.new_folder(), **request})
        if not reply["path"]:
            return None, 0.0
        return player.fetch(str(reply["path"]), target), float(reply["return"])


def summarize(
    source: str, observations: Sequence[Array], *, spaces: Spaces, limits: PlayLimits, process: GeneratedProcess
) -> list[str]:
    """Return the text of a feedback class for each episode; blocks.

    :param observations: (T+1, D) of each episode.
    :raises PolicyFailure: the feedback class fails on one of them.
    """
    with process as running:
        host = FeedbackHost(running, TimeBudget(limits.candidate_seconds))
        host.load(source, spaces, limits=limits)
        return [host.summarize(rows) for rows in observations]


def _part(task: CodeTask, reply: Mapping[str, Any], player: Player, host: PolicyHost, count: int) -> PlayedPart:
    columns = [np.asarray(reply.get(name)) for name in ("returns", "lengths", "successes")]
    if not all(column.shape == (count,) for column in columns):
        raise Internal("a player sent a malformed reply", reason="PLAYER_FAILED")
    returns, lengths, successes = columns

    def arrays_of(what: str, keep: bool) -> tuple[Array, ...]:
        return tuple(player.ask({"lockstep": what, "episode": index})[what] for index in range(count) if keep)

    return PlayedPart(
        returns=tuple(map(float, returns)),
        lengths=tuple(map(int, lengths)),
        successes=tuple(map(bool, successes)) if bool((successes >= 0).all()) else (),
        actions=arrays_of("actions", task.keep_actions),
        observations=arrays_of("observations", task.keep_observations),
        acts=host.acts,
        act_seconds=host.seconds,
    )
