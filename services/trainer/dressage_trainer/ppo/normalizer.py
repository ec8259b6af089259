"""Running normalisation of observations and returns, per member: the semantics of SB3's VecNormalize.

Statistics are float64 and merged batch by batch (Chan, Golub and LeVeque's parallel variance), starting from mean 0,
variance 1 and a count of 1e-4, as SB3's RunningMeanStd. A leading axis holds the members; no value crosses it.

A finite value may have a square that is not. An infinite variance stays infinite, and everything that is divided by its
root is 0. A member whose variance overflows is therefore reported, so that the caller can stop it, and keeps its earlier
statistics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPSILON = 1e-8
_INITIAL_COUNT = 1e-4

Arrays = dict[str, np.ndarray]


Moments = tuple[Any, Any, Any]
"""Mean (M, ...), population variance (M, ...) and count (M,) of a stream of rows, of numpy or of JAX."""


def merge_moments(moments: Moments, mean: Any, var: Any, size: int) -> Moments:
    """Return moments with a batch of ``size`` rows, of which ``mean`` and ``var`` (M, ...) are given; with either library."""
    earlier, variance, counts = moments
    count = counts.reshape(-1, *(1,) * (mean.ndim - 1))
    total = count + size
    delta = mean - earlier
    # In SB3's order of operations, so that both give the same bits.
    second = variance * count + var * size + delta * delta * count * size / total
    return earlier + delta * size / total, second / total, counts + size


class RunningMoments:
    """Mean and population variance of a stream of batches, for each member.

    :param shape: shape of one member's statistics.
    """

    def __init__(self, members: int, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros((members, *shape))
        self.var = np.ones((members, *shape))
        self.count = np.full(members, _INITIAL_COUNT)

    def parts(self) -> Moments:
        """Return the statistics themselves, for `put_back`; a merge writes into none of them."""
        return self.mean, self.var, self.count

    def put_back(self, parts: Moments, members: np.ndarray) -> None:
        """Undo the merges since ``parts`` was taken, for the members marked in ``members`` (M,)."""
        for now, before in zip(self.parts(), parts, strict=True):
            now[members] = before[members]

    def overflow_mask(self) -> np.ndarray:
        """(M,) True where a variance is not finite."""
        finite = np.isfinite(self.var).reshape(len(self.var), -1)
        broken: np.ndarray = ~np.logical_and.reduce(finite, axis=1)
        return broken

    def merge(self, mean: np.ndarray, var: np.ndarray, size: int) -> None:
        """Add a batch of ``size`` rows with the given per-member mean and population variance."""
        self.mean, self.var, self.count = merge_moments(self.parts(), mean, var, size)

    def arrays(self) -> Arrays:
        """Copies of the statistics, for a snapshot."""
        return {"mean": self.mean.copy(), "var": self.var.copy(), "count": self.count.copy()}

    def load(self, arrays: Arrays) -> None:
        """The inverse of `arrays`."""
        self.mean = np.array(arrays["mean"])
        self.var = np.array(arrays["var"])
        self.count = np.array(arrays["count"])


def _common(clips: np.ndarray) -> float | None:
    """Return the bound of all members, with which numpy clips faster than with one for each; None if they differ."""
    return float(clips[0]) if (clips == clips[0]).all() else None


class ObservationNormalizer:
    """Normalises (M, n, D) observations by each member's own running moments, clipped to each member's own bound.

    :param clips: (M,) bounds of normalised observations, above 0.
    """

    def __init__(self, clips: np.ndarray, size: int, *, enabled: bool = True, dtype: Any = np.float32) -> None:
        self.moments = RunningMoments(len(clips), (size,))
        self._clips = clips[:, None, None]
        self._clip = _common(clips)
        self._enabled = enabled
        self._dtype = dtype
        self._refresh()

    def _refresh(self) -> None:
        self._scale = (1.0 / np.sqrt(self.moments.var + EPSILON))[:, None, :]
        self._shift = self.moments.mean[:, None, :]

    def update(self, observations: np.ndarray, *, skip: np.ndarray | None = None) -> np.ndarray | None:
        """Merge a batch; members marked in ``skip`` (M,) keep their statistics.

        :returns: (M,) True for members whose variance overflowed, which keep theirs as well; None if there are none.
        """
        if not self._enabled:
            return None
        before = self.moments.parts()
        overflowed: np.ndarray | None = None
        size = observations.shape[1]
        mean = np.add.reduce(observations, axis=1) / size
        deviation = observations - mean[:, None]
        var = np.einsum("mnd,mnd->md", deviation, deviation) / size
        self.moments.merge(mean, var, size)
        if skip is not None:
            self.moments.put_back(before, skip)
        # One sum for all members; where only the sum overflows, the closer look finds no member.
        if not math.isfinite(np.add.reduce(self.moments.var, axis=None)):
            overflowed = self.moments.overflow_mask()
            self.moments.put_back(before, overflowed)
        self._refresh()
        return overflowed

    @np.errstate(over="ignore", invalid="ignore")
    def take_rollout(self, means: np.ndarray, variances: np.ndarray, *, size: int, skip: np.ndarray) -> None:
        """Merge the batches of a rollout, of which only the moments are given: those that a device has computed.

        :param means: (T, M, D), in order of time.
        :param variances: (T, M, D).
        :param size: rows of each batch.
        :param skip: (T, M) True where a member keeps its statistics.
        """
        if not self._enabled:
            return
        for mean, var, skipped in zip(means, variances, skip, strict=True):
            before = self.moments.parts()
            self.moments.merge(mean, var, size)
            self.moments.put_back(before, skipped)
        self._refresh()

    def normalize(self, observations: np.ndarray) -> np.ndarray:
        """(M, n, D) raw observations to normalised ones of the training dtype."""
        if not self._enabled:
            return observations.astype(self._dtype)
        x = observations - self._shift
        x *= self._scale
        bound = self._clips if self._clip is None else self._clip
        np.clip(x, -bound, bound, out=x)
        return x.astype(self._dtype, copy=False)

    def normalize_rows(self, members: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """Normalise single observations, each by its own member's statistics.

        :param members: (rows,) index of each row's member.
        :param observations: (rows, D).
        """
        if not self._enabled:
            return observations.astype(self._dtype)
        x = (observations - self._shift[members, 0]) * self._scale[members, 0]
        bound = self._clips[members, 0] if self._clip is None else self._clip
        result: np.ndarray = np.clip(x, -bound, bound).astype(self._dtype)
        return result

    def load(self, arrays: Arrays) -> None:
        """Restore the statistics of a snapshot."""
        self.moments.load(arrays)
        self._refresh()


class ReturnNormalizer:
    """Divides rewards by the running standard deviation of each member's discounted return, clipped to each member's own bound.

    :param discounts: (M,) each member's own discount.
    :param clips: (M,) bounds of normalised rewards, above 0.
    """

    def __init__(self, num_envs: int, discounts: np.ndarray, clips: np.ndarray, *, enabled: bool = True) -> None:
        members = len(discounts)
        self.moments = RunningMoments(members, ())
        self.returns = np.zeros((members, num_envs))
        self._discounts = discounts[:, None]
        self._clips = clips[:, None, None]
        self._enabled = enabled
        self.overflows: dict[int, int] = {}
        """Members whose variance overflowed in the last rollout, with the step of the rollout at which it did."""

    @np.errstate(over="ignore", invalid="ignore")
    def normalize(self, rewards: np.ndarray, dones: np.ndarray) -> np.ndarray:
        """Normalise the rewards of a whole rollout, given as (M, T, n) rewards and dones in order of time.

        The statistics include the return of step t before step t's reward is divided; a done resets the return.
        Rewards of members in `overflows` are 0.
        """
        if not self._enabled:
            return rewards
        steps = rewards.shape[1]
        returns = np.empty_like(rewards)
        running = self.returns
        alive = 1.0 - dones
        for t in range(steps):
            running = running * self._discounts + rewards[:, t]
            returns[:, t] = running
            running = running * alive[:, t]
        spread = self.take_rollout(returns.mean(axis=2), returns.var(axis=2), running)[..., None]
        normalised: np.ndarray = np.clip(rewards / np.sqrt(spread + EPSILON), -self._clips, self._clips)
        if self.overflows:
            normalised[list(self.overflows)] = 0.0
        return normalised

    @np.errstate(over="ignore", invalid="ignore")
    def take_rollout(self, means: np.ndarray, variances: np.ndarray, running: np.ndarray) -> np.ndarray:
        """Merge the discounted returns of a rollout, of which only the moments are given; return the variance after each step.

        Members whose variance overflows are then in `overflows`, and keep their earlier statistics.

        :param means: (M, T) over the environments, in order of time.
        :param variances: (M, T).
        :param running: (M, n) discounted returns of the running episodes after the rollout.
        :returns: (M, T).
        """
        before, returns_before = self.moments.parts(), self.returns
        self.returns = running
        spread = np.empty(means.shape)
        for t in range(means.shape[1]):
            self.moments.merge(means[:, t], variances[:, t], running.shape[1])
            spread[:, t] = self.moments.var
        overflowed = self.moments.overflow_mask()
        self.overflows = {int(m): int(np.argmin(np.isfinite(spread[m]))) for m in np.flatnonzero(overflowed)}
        if self.overflows:
            self.moments.put_back(before, overflowed)
            self.returns[overflowed] = returns_before[overflowed]
        return spread

    def arrays(self) -> Arrays:
        """Copies of the statistics and of the running returns, for a snapshot."""
        return {**self.moments.arrays(), "returns": self.returns.copy()}

    def load(self, arrays: Arrays) -> None:
        """The inverse of `arrays`."""
        self.moments.load(arrays)
        self.returns = np.array(arrays["returns"])
