"""Players that outlive assignments: a trivial candidate must not wait for an interpreter to start.

A player holds no generated code, so an earlier candidate cannot affect a later one. One that loads the code of a registered
language plays that language only. The pool belongs to a lease; one assignment after another borrows players from it.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dressage.envs.cards import load_card
from dressage.envs.packs.registry import broken_pack_error, reinstall_remedy
from dressage.errors import DeadlineExceeded, DressageError, Internal, InvalidArgument, ResourceExhausted, Unavailable
from dressage.log_tails import without_tracebacks
from dressage.programs.languages.failures import FAILED, process_error
from dressage.programs.languages.store import language_code
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.output import excerpt
from dressage.sandbox.pipe import MALFORMED, ChannelClosed, ProtocolError
from dressage.sandbox.process import Exit, SandboxProcess

from dressage_trainer.lease.files import copy_from_sandbox
from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec, of_pack

_PRELOAD = ("dressage_trainer.evaluation.player",)
_LIMITS = Limits(memory_bytes=2 * GIB, file_bytes=GIB)
SANDBOX = SandboxSpec(limits=_LIMITS, preload=_PRELOAD)
"""How a player's process is started where there are no compiled kernels."""


def sandbox_of(pack: str, ours: SandboxSpec = SANDBOX) -> SandboxSpec:
    """Return how the process of a player is started that plays environments of a pack; empty: ours.

    :raises FailedPrecondition: if the pack is not installed.
    """
    if not pack:
        return ours
    return of_pack(SANDBOX, pack)


_REPLY_SECONDS = 600.0
"""Limit for a part of an evaluation, see `assignments.evaluate`; none should take a tenth of it."""
LANGUAGE_SECONDS = 180.0
"""Limit for a part of an evaluation, or between two signs of a search, with the code of a registered language."""
_EXIT_SECONDS = 5.0
"""A process that closed its channel has ended by then."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
"""Ends of a process that loads a damaged library."""
_SHOWN = 500
"""Characters of a pack's error in a message."""
_MAX_TRACE = 1 << 16
"""Characters of an episode as text."""
_PLAYER = "dressage_trainer.evaluation.player:play"


def blames_plugin(ended: Exit, error: DressageError) -> bool:
    """Return whether a process that runs a plug-in's code ended because of it; otherwise another attempt may succeed."""
    caused = ended.kind in ("memory", "timeout", "ok") or ended.bound or ended.code > 0 or -ended.code in _CRASHES
    return caused or isinstance(error, DeadlineExceeded | ProtocolError)


@dataclass(frozen=True)
class PlayedEpisodes:
    """Episodes of one candidate, in the order of their seeds.

    :param successes: empty where the environment gives none.
    :param rollouts: recorded episodes of the first seeds, as files of the supervisor's own.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool, ...]
    rollouts: tuple[Path, ...] = ()
    trace: str = ""
    """An episode as text, if the request asked for one."""


class PlayerPool:
    """Player processes, started when first needed and kept until `close`.

    :param sandbox: how they are started.
    """

    def __init__(self, sandboxes: Sandboxes, sandbox: SandboxSpec = SANDBOX) -> None:
        self._sandboxes, self._sandbox = sandboxes, sandbox
        self._idle: list[Player] = []
        self._all: set[Player] = set()
        self._closed = False

    @asynccontextmanager
    async def borrow(self, environment: str) -> AsyncIterator[Player]:
        """Lend a player, if possible one that played this environment last. The caller bounds how many it borrows.

        :raises FailedPrecondition: if the environment's pack is not installed.
        """
        player = self._take(environment, load_card(environment).pack, language_code(environment))
        player.environment = environment
        try:
            yield player
        finally:
            if player.busy or self._closed:  # it still plays for an assignment that was interrupted
                self._all.discard(player)
                await asyncio.to_thread(player.end)
            else:
                self._idle.append(player)

    def _take(self, environment: str, pack: str, code: str) -> Player:
        if self._closed:
            raise Internal("the pool of players is closed")
        for index in reversed(range(len(self._idle))):
            if self._idle[index].environment == environment and self._idle[index].code == code:
                return self._idle.pop(index)
        for index in reversed(range(len(self._idle))):
            if self._idle[index].pack == pack and self._idle[index].code == code:
                return self._idle.pop(index)
        player = Player(self._sandboxes, sandbox_of(pack, self._sandbox), pack=pack, code=code)
        self._all.add(player)
        return player

    async def close(self) -> None:
        """End all players, those at work too."""
        self._closed = True
        for player in list(self._all):
            await asyncio.to_thread(player.end)


class Player:
    """One player process; a new one is started if it has ended.

    :param sandbox: how its process is started.
    :param pack: environment pack whose environments it plays; empty: ours.
    :param code: registered language whose code it loads, see `language_code`; empty: it loads no generated code.
    """

    def __init__(self, sandboxes: Sandboxes, sandbox: SandboxSpec = SANDBOX, *, pack: str = "", code: str = "") -> None:
        self._sandboxes, self._sandbox, self.pack, self.code = sandboxes, sandbox, pack, code
        self._process: SandboxProcess | None = None
        self._requests = itertools.count()
        self.environment = ""
        self.busy = False
        """Whether a request is not answered yet."""
        self._answered = False
        """Whether the present process has answered a request."""
        self._lock, self._abandoned = threading.Lock(), False

    async def play(self, request: Mapping[str, Any], *, target: Path) -> PlayedEpisodes:
        """Play a request of `player.answer`; its ``folder`` is set here.

        :param target: folder that recorded rollouts are copied to.
        :raises InvalidArgument: if the policy cannot play in the environment.
        :raises ResourceExhausted: if it takes more memory than a player has.
        :raises OSError: if the disk is full.
        :raises DressageError: if the player fails.
        """
        return await asyncio.to_thread(self._play, request, target)

    def _play(self, request: Mapping[str, Any], target: Path) -> PlayedEpisodes:
        request = {**request, "folder": self.new_folder()}
        with self.conversation():
            reply = self.ask(request)
        return self._parse_reply(reply, request, scratch=self._running().scratch, target=target)

    @contextmanager
    def conversation(self) -> Iterator[None]:
        """Ask several times: until the end of the block, the player is not idle for others."""
        self._running()
        self.busy = True
        try:
            yield
        finally:
            with self._lock:
                self.busy, abandoned = False, self._abandoned
            if abandoned and self._process is not None:
                process, self._process = self._process, None
                self._sandboxes.end(process)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a request of `player.play`; blocks. Within `conversation` only.

        :raises InvalidArgument: if the player refuses it.
        :raises FailedPrecondition: if the packages of the environment's pack do not work.
        :raises ResourceExhausted: if it takes more memory than a player has.
        :raises OSError: if the disk is full.
        :raises DressageError: if the player fails.
        """
        process = self._running()
        try:
            limit = LANGUAGE_SECONDS if self.code else _REPLY_SECONDS
            process.channel.send(request, timeout=limit)
            reply = process.channel.recv(timeout=limit)
        except DressageError as error:
            raise self._failure(process, error) from error
        self._answered = True
        if "damaged" in reply:
            problem = excerpt(reply["damaged"], _SHOWN)
            self._discard(process)  # its half-imported packages would fail otherwise next time
            raise broken_pack_error(self.pack, self.environment, problem)
        if "refused" in reply:
            reason = FAILED if self.code and reply.get("reason") == FAILED else None
            raise InvalidArgument(excerpt(reply["refused"], 2000), field="parameters", reason=reason)
        if "error" in reply:
            number = _error_number(reply["error"])
            raise OSError(number, os.strerror(number), "rollouts of an evaluation")
        return reply

    def new_folder(self) -> str:
        """Return the name of a folder that no earlier request had, relative to the player's scratch folder."""
        return f"r{next(self._requests)}"

    def fetch(self, path: str, target: Path) -> Path:
        """Copy a file that the player wrote.

        :param path: relative to its scratch folder; the folder that contains it is removed.
        :raises DressageError: if it is no regular file there.
        """
        scratch = self._running().scratch
        copied = copy_from_sandbox(scratch / path, scratch, target)
        shutil.rmtree((scratch / path).parent, ignore_errors=True)
        return copied

    def _parse_reply(
        self, reply: Mapping[str, Any], request: Mapping[str, Any], *, scratch: Path, target: Path
    ) -> PlayedEpisodes:
        """Check the form of what a sandboxed process sent, and return it typed."""
        count = len(request["seeds"])
        columns = [_numbers(reply.get(name)) for name in ("returns", "lengths", "successes")]
        paths = reply.get("paths", [])
        whole = all(column.shape == (count,) for column in columns) and isinstance(paths, list)
        whole = whole and all(bool(np.isfinite(column).all()) for column in columns[1:])
        if not whole or len(paths) != min(int(request["recorded"]), count):
            self.end()
            raise Internal("a player sent a malformed reply", reason="PLAYER_FAILED")
        returns, lengths, successes = columns
        suffix = ".json" if "program" in request else ".npz"
        rollouts = tuple(
            copy_from_sandbox(scratch / str(path), scratch, target / f"{index}{suffix}")
            for index, path in enumerate(paths)
        )
        if paths:
            shutil.rmtree(scratch / request["folder"], ignore_errors=True)
        scored = bool((successes >= 0).all())
        return PlayedEpisodes(
            returns=tuple(map(float, returns)),
            lengths=tuple(map(int, lengths)),
            successes=tuple(map(bool, successes)) if scored else (),
            rollouts=rollouts,
            trace=excerpt(reply.get("trace", ""), _MAX_TRACE),
        )

    def _running(self) -> SandboxProcess:
        if self._abandoned:
            raise _ended_with_assignment()
        process = self._process
        if process is not None and process.poll() is not None:
            self._sandboxes.end(process)
            self._process = process = None
        return process or self._start()

    def _start(self) -> SandboxProcess:
        process = self._sandboxes.start(self._sandbox, _PLAYER)
        with self._lock:
            if not self._abandoned:
                self._process, self._answered = process, False
                return process
        self._sandboxes.end(process)  # `end` came while it was started
        raise _ended_with_assignment()

    def _failure(self, process: SandboxProcess, error: DressageError) -> DressageError:
        """End a player that did not answer; return the error."""
        ended = (process.wait(_EXIT_SECONDS) if isinstance(error, ChannelClosed) else None) or process.kill()
        self._discard(process)
        if ended.kind == "memory" and (process.exceeded_memory or ended.code != -signal.SIGKILL):
            message = f"an evaluation was ended: {ended.reason}; lower max_episode_steps or keep no rollouts"
            return ResourceExhausted(message, reason="EPISODE_TOO_LONG")
        if self.code and blames_plugin(ended, error):
            problem = error.message if isinstance(error, DeadlineExceeded) else ended.reason
            failure = process_error(self.environment.partition("/")[0], problem, ended.stderr_tail)
            return InvalidArgument(failure.message, reason=FAILED)
        if self.pack:
            return self._failure_of_pack(ended, error)
        if ended.stderr_tail and not isinstance(error, DeadlineExceeded):
            return Internal(f"a player failed: {without_tracebacks(ended.stderr_tail)[-2000:]}", reason="PLAYER_FAILED")
        return error

    def _failure_of_pack(self, ended: Exit, error: DressageError) -> DressageError:
        """Return the error of a process that imports a pack's packages: they may be damaged."""
        lines = ended.stderr_tail.strip().splitlines()
        # Before the first answer a crash means damaged packages; one that comes later is retried (decision 0045).
        if not self._answered and (ended.code > 0 or -ended.code in _CRASHES):
            return broken_pack_error(self.pack, self.environment, lines[-1][:_SHOWN] if lines else ended.reason)
        problem = error.message if isinstance(error, DeadlineExceeded) else ended.reason
        if ended.code > 0 and lines:
            problem += f": {lines[-1][:_SHOWN]}"
        remedy = reinstall_remedy(self.pack)
        message = (
            f"{self.environment}: the process of its environment pack {self.pack} failed: {problem}. "
            f"If it fails again, the pack may be damaged. {remedy}"
        )
        return Unavailable(message, reason="PLAYER_FAILED", metadata={"pack": self.pack, "remedy": remedy})

    def _discard(self, process: SandboxProcess) -> None:
        self._sandboxes.end(process)
        self._process, self.busy = None, False

    def end(self) -> None:
        """End the process, also while a thread waits for its answer; that thread then removes its folder."""
        with self._lock:
            waiting, process, self._abandoned = self.busy, self._process, True
        if process is None:
            return
        process.kill()
        if not waiting:
            self._process = None
            self._sandboxes.end(process)


def _numbers(value: Any) -> np.ndarray:
    """Return numbers that a player sent; an array of another shape for what is none."""
    try:
        return np.asarray(value, np.float64)
    except MALFORMED:
        return np.zeros((0, 0))


def _error_number(value: Any) -> int:
    """Return the number of a system's error that a sandboxed process sent."""
    return value if type(value) is int and value in errno.errorcode else errno.EIO


def _ended_with_assignment() -> Internal:
    return Internal("the player has ended with its assignment")


def parts(seeds: Sequence[int], *, size: int) -> list[tuple[int, Sequence[int]]]:
    """Return the seeds in parts of at most ``size``, each with the place of its first."""
    return [(start, seeds[start : start + size]) for start in range(0, len(seeds), size)]
