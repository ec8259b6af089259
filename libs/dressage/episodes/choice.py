"""Chooses the engine that plays an environment's episodes. It imports no compiler until one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dressage.envs.options import EnvOptions
from dressage.envs.rules import RULED_IDS
from dressage.envs.tasks import SIMULATED_IDS
from dressage.episodes.outcomes import Outcomes

if TYPE_CHECKING:
    from dressage.episodes.lockstep import CompiledSimulation
from dressage.policies.kinds import PolicySpec

_EXACT_KINDS = ("linear", "table")
"""Kinds whose policies act alone to the same bits: others take a hyperbolic tangent, which NumPy computes by its own code."""


class EpisodeEngine(Protocol):
    """Plays candidates of one policy shape in one environment. One thread may use it at a time."""

    part: int
    """Candidates that one call should get, at most."""

    def play(self, parameters: NDArray[np.float64]) -> Outcomes:
        """Play all episodes of the candidates.

        :param parameters: (P, n) float64, in the order of the kind's vector.
        :raises InvalidArgument: for numbers that the kind refuses, or an action that is not a number.
        """


def has_engine(env_id: str, spec: PolicySpec) -> bool:
    """Return whether `episode_engine` may return an engine: its kernels are worth compiling ahead."""
    return env_id in RULED_IDS or (env_id in SIMULATED_IDS and spec.kind != "table")


def episode_engine(
    env_id: str,
    spec: PolicySpec,
    seeds: Sequence[int],
    options: EnvOptions | None = None,
    *,
    threads: int = 1,
) -> EpisodeEngine | None:
    """Return the engine of an environment; None: stock Gymnasium must play it.

    :param seeds: one of each episode.
    :param threads: native threads; only MuJoCo's simulations use more than one.
    :raises InvalidArgument: for a bad option.
    """
    if not has_engine(env_id, spec):
        return None
    if env_id in SIMULATED_IDS:
        from dressage.episodes.simulated import SimulatedEpisodes

        return SimulatedEpisodes(env_id, spec, seeds, options, threads=threads)
    from dressage.episodes.compiled import CompiledEpisodes, is_exact

    return CompiledEpisodes(env_id, spec, seeds, options) if is_exact(env_id) else None


def lockstep(env_id: str, options: EnvOptions) -> CompiledSimulation | None:
    """Return episodes that step together, for policies that are not compiled; None: stock Gymnasium must play them.

    :raises InvalidArgument: for a bad option.
    """
    if env_id not in RULED_IDS:
        return None
    from dressage.episodes.compiled import is_exact
    from dressage.episodes.lockstep import CompiledSimulation

    return CompiledSimulation(env_id, options) if is_exact(env_id) else None


def acts_alike(spec: PolicySpec) -> bool:
    """Return whether a policy of this kind acts alone (`Policy.act`) as it does in an engine, to the bit."""
    return spec.kind in _EXACT_KINDS
