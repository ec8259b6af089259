"""Players that outlive assignments: a trivial candidate must not wait for an interpreter to start.

A player holds no generated code, so an earlier candidate cannot affect a later one. The pool belongs to a lease; one
assignment after another borrows players from it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dressage.errors import DeadlineExceeded, DressageError, Internal, InvalidArgument, ResourceExhausted
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess

from dressage_trainer.lease.files import copy_from_sandbox
from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec

_PRELOAD = ("dressage_trainer.evaluation.player",)
_LIMITS = Limits(memory_bytes=2 * GIB, file_bytes=GIB)
SANDBOX = SandboxSpec(limits=_LIMITS, preload=_PRELOAD)
"""How a player's process is started."""
_REPLY_SECONDS = 600.0
"""Limit for a part of an evaluation, see `assignments.evaluate`; none should take a tenth of it."""
_PLAYER = "dressage_trainer.evaluation.player:play"


@dataclass(frozen=True)
class Played:
    """Episodes of one candidate, in the order of their seeds.

    :param successes: empty where the environment gives none.
    :param rollouts: recorded episodes of the first seeds, as files of the supervisor's own.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool, ...]
    rollouts: tuple[Path, ...] = ()


class PlayerPool:
    """Player processes, started when first needed and kept until `close`."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._idle: list[Player] = []
        self._all: set[Player] = set()
        self._closed = False

    @asynccontextmanager
    async def borrow(self, environment: str) -> AsyncIterator[Player]:
        """Lend a player, if possible one that played this environment last. The caller bounds how many it borrows."""
        player = self._take(environment)
        player.environment = environment
        try:
            yield player
        finally:
            if player.busy or self._closed:  # it still plays for an assignment that was interrupted
                self._all.discard(player)
                await asyncio.to_thread(player.end)
            else:
                self._idle.append(player)

    def _take(self, environment: str) -> Player:
        if self._closed:
            raise Internal("the pool of players is closed")
        for index in reversed(range(len(self._idle))):
            if self._idle[index].environment == environment:
                return self._idle.pop(index)
        if self._idle:
            return self._idle.pop()
        player = Player(self._sandboxes)
        self._all.add(player)
        return player

    async def close(self) -> None:
        """End all players, those at work too."""
        self._closed = True
        for player in list(self._all):
            await asyncio.to_thread(player.end)


class Player:
    """One player process; a new one is started if it has ended."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._process: SandboxProcess | None = None
        self._requests = itertools.count()
        self.environment = ""
        self.busy = False
        """Whether a request is not answered yet."""

    async def play(self, request: Mapping[str, Any], *, target: Path) -> Played:
        """Play a request of `player.answer`; its ``folder`` is set here.

        :param target: folder that recorded rollouts are copied to.
        :raises InvalidArgument: if the policy cannot play in the environment.
        :raises ResourceExhausted: if it takes more memory than a player has.
        :raises OSError: if the disk is full.
        :raises DressageError: if the player fails.
        """
        return await asyncio.to_thread(self._play, request, target)

    def _play(self, request: Mapping[str, Any], target: Path) -> Played:
        process = self._running()
        request = {**request, "folder": f"r{next(self._requests)}"}
        self.busy = True
        try:
            process.channel.send(request, timeout=_REPLY_SECONDS)
            reply = process.channel.recv(timeout=_REPLY_SECONDS)
        except DressageError as error:
            raise self._failure(process, error) from error
        self.busy = False
        if "refused" in reply:
            raise InvalidArgument(str(reply["refused"])[:2000], field="parameters")
        if "error" in reply:
            number = int(reply["error"])
            raise OSError(number, os.strerror(number), "rollouts of an evaluation")
        return self._checked(reply, request, scratch=process.scratch, target=target)

    def _checked(self, reply: Mapping[str, Any], request: Mapping[str, Any], *, scratch: Path, target: Path) -> Played:
        """Check the form of what a sandboxed process sent, and return it typed."""
        count = len(request["seeds"])
        columns = [np.asarray(reply.get(name)) for name in ("returns", "lengths", "successes")]
        paths = reply.get("paths", [])
        whole = all(column.shape == (count,) for column in columns) and isinstance(paths, list)
        if not whole or len(paths) != min(int(request["recorded"]), count):
            self.end()
            raise Internal("a player sent a malformed reply", reason="PLAYER_FAILED")
        returns, lengths, successes = columns
        rollouts = tuple(
            copy_from_sandbox(scratch / str(path), scratch, target / f"{index}.npz") for index, path in enumerate(paths)
        )
        if paths:
            shutil.rmtree(scratch / request["folder"], ignore_errors=True)
        known = bool((successes >= 0).all())
        return Played(
            returns=tuple(map(float, returns)),
            lengths=tuple(map(int, lengths)),
            successes=tuple(map(bool, successes)) if known else (),
            rollouts=rollouts,
        )

    def _running(self) -> SandboxProcess:
        process = self._process
        if process is not None and process.poll() is not None:
            self._sandboxes.end(process)
            process = None
        if process is None:
            process = self._process = self._sandboxes.start(SANDBOX, _PLAYER)
        return process

    def _failure(self, process: SandboxProcess, error: DressageError) -> DressageError:
        """End a player that did not answer; return the error."""
        ended = process.kill()
        self._sandboxes.end(process)
        self._process, self.busy = None, False
        beyond = process.peak_memory_bytes > _LIMITS.memory_bytes  # otherwise the machine's memory was short
        if ended.kind == "memory" and (beyond or ended.code != -signal.SIGKILL):
            message = f"an evaluation was ended: {ended.reason}; lower max_episode_steps or keep no rollouts"
            return ResourceExhausted(message, reason="EPISODE_TOO_LONG")
        if ended.stderr_tail and not isinstance(error, DeadlineExceeded):
            return Internal(f"a player failed: {ended.stderr_tail[-2000:]}", reason="PLAYER_FAILED")
        return error

    def end(self) -> None:
        """End the process, also while a thread waits for its answer; that thread then removes its folder."""
        waiting, process = self.busy, self._process
        if process is None:
            return
        process.kill()
        if not waiting:
            self._process = None
            self._sandboxes.end(process)


def parts(seeds: Sequence[int], *, size: int) -> list[tuple[int, Sequence[int]]]:
    """Return the seeds in parts of at most ``size``, each with the place of its first."""
    return [(start, seeds[start : start + size]) for start in range(0, len(seeds), size)]
