"""Code policies on this machine: `act` and episodes run the source in a sandboxed process, never in this one."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dressage.contracts.hidden import HIDDEN
from dressage.contracts.policy_host import (
    MAX_MESSAGE_BYTES,
    PLAY,
    POLICY_LIMITS,
    PRELOAD,
    PlayLimits,
    PolicyHost,
    TimeBudget,
)
from dressage.contracts.spaces import Spaces
from dressage.errors import InvalidArgument
from dressage.policies.code import CodePolicy
from dressage.sandbox.process import SandboxProcess
from dressage.sandbox.scratch import remove_scratch

_UNLIMITED = float("inf")


class SandboxedPolicy:
    """A code policy that acts. Use as a context manager, or close it; an unused one ends with this object.

    :param policy: the bundle.
    :param allow_unsandboxed: run the code even if this kernel has no sandbox; only for code that you have read.
    """

    def __init__(self, policy: CodePolicy, *, allow_unsandboxed: bool = False) -> None:
        self.description = policy
        self._allow_unsandboxed = allow_unsandboxed
        self._spaces = spaces_of(policy)
        self._host: PolicyHost | None = None
        self._end: weakref.finalize[[SandboxProcess, Path], SandboxedPolicy] | None = None
        self._began = False

    def __repr__(self) -> str:
        return f"Policy({self.description.environment}, code)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def card(self) -> dict[str, Any]:
        """The contents of ``card.json``."""
        return self.description.card

    @property
    def source(self) -> str:
        """Python source of the policy."""
        return self.description.source

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bundle as a folder, or as one file if the name ends in ``.zip``."""
        return self.description.save(path)

    def close(self) -> None:
        """End the process; the next action starts another one."""
        self._host = None
        if self._end is not None:
            self._end()

    def reset(self) -> None:
        """Begin an episode: the next action is that of a new instance. The first action begins one as well."""
        self.begin(1)

    def begin(self, count: int) -> None:
        """Begin ``count`` episodes, which `act_all` plays.

        :raises PolicyFailure: the source breaks the contract.
        """
        self._running_host().begin(count)
        self._began = True

    def act(self, observation: ArrayLike) -> NDArray[Any]:
        """Return the action of the episode that `reset` began.

        :param observation: (D,); where observations are discrete, an integer or its one-hot form.
        :returns: (A,) float32 within the bounds, or () int64.
        :raises InvalidArgument: for another shape.
        :raises PolicyFailure: the policy breaks its contract or a limit.
        """
        if not self._began:
            self.reset()
        action: NDArray[Any] = self.act_all(self._row(observation)[None], [0])[0]
        return np.asarray(action)

    def act_all(self, observations: NDArray[Any], episodes: Sequence[int]) -> NDArray[Any]:
        """Return the actions of running episodes: (n, A) float32, or (n,) int64.

        :param observations: (n, D) float64.
        :param episodes: their indices, ascending; an episode that is left out has ended.
        :raises PolicyFailure: the policy breaks its contract or a limit.
        """
        try:
            return self._running_host().act(np.asarray(observations, np.float64), episodes)
        except Exception:
            self.close()
            self._began = False
            raise

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...] | None]:
        """Return the action as ``predict`` of Stable-Baselines3 does.

        :param observation: as for `act`.
        :param state: returned unchanged; the process keeps the policy's state.
        :param episode_start: (1,) bool; True begins an episode.
        :param deterministic: not used: the policy itself decides.
        """
        if episode_start is not None and bool(np.any(episode_start)):
            self.reset()
        return self.act(observation), state

    def _row(self, observation: ArrayLike) -> NDArray[np.float64]:
        rows, size, count = np.asarray(observation), self._spaces.observation_size, self._spaces.num_observations
        if count and rows.shape == () and rows.dtype.kind in "iu" and 0 <= int(rows) < count:
            return np.asarray(np.eye(size)[int(rows)], np.float64)
        if rows.shape != (size,):
            expected = f"shape ({size},)" + (f", or an integer below {count}" if count else "")
            raise InvalidArgument(field="observation", value=f"shape {rows.shape}", expected=expected)
        return np.asarray(rows, np.float64)

    def _running_host(self) -> PolicyHost:
        if self._host is not None:
            return self._host
        scratch = Path(tempfile.mkdtemp(prefix="dressage-policy-"))
        try:
            process = SandboxProcess.start(
                PLAY,
                limits=POLICY_LIMITS,
                scratch=scratch,
                hidden=HIDDEN,
                preload=PRELOAD,
                max_message_bytes=MAX_MESSAGE_BYTES,
                allow_unsandboxed=self._allow_unsandboxed,
            )
        except BaseException:
            remove_scratch(scratch)
            raise
        self._end = weakref.finalize(self, _close, process, scratch)
        host = PolicyHost(process, TimeBudget(_UNLIMITED))
        try:
            # An interactive use has no episodes that could be bounded as a whole.
            host.load(self.source, self._spaces, limits=PlayLimits(episode_seconds=1e9))
        except BaseException:
            self._end()
            raise
        self._host = host
        return host


def _close(process: SandboxProcess, scratch: Path) -> None:
    process.close()
    remove_scratch(scratch)


def spaces_of(policy: CodePolicy) -> Spaces:
    """Return the spaces of a bundle."""
    return Spaces(
        observation_size=policy.observation_size or policy.observation_count,
        num_observations=policy.observation_count,
        num_actions=policy.num_actions,
        low=policy.action_low,
        high=policy.action_high,
    )
