"""Null controls: recorded episodes that do not show the behaviour. A judge must score them below its threshold."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from dressage.contracts import CheckFailure
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.errors import FailedPrecondition, InvalidArgument

TIME_REVERSED = "time_reversed"
FULL_LENGTH = "full_length"
"""Label of shipped episodes that are prolonged to full length. A judge must judge them; they are no null controls."""
ROLLOUT, ROLLOUT_REVERSED = "rollout", "rollout_reversed"
"""Labels of recorded rollouts, and of the same ones played backwards."""
CONTROLS = ("random", "untrained", "motionless", TIME_REVERSED)
_REVERSED_KINDS = ("random", "untrained")
_QUOTED_FIELDS = ("x_velocity", "z_velocity", "z_position", "height", "pitch")
"""Fields whose means a failure reports, if the environment has them."""


@functools.lru_cache(maxsize=16)
def control_trajectories(env_id: str) -> dict[str, list[Trajectory]]:
    """Return the shipped episodes of an environment by kind, and the random and untrained ones in reverse order.

    Callers share the result and must not modify it.

    :raises NotFound: for an unknown environment.
    """
    shipped = load_check_trajectories(env_id)
    backwards = [episode.reverse_time() for kind in _REVERSED_KINDS for episode in shipped.get(kind, [])]
    return {**shipped, TIME_REVERSED: backwards}


@functools.lru_cache(maxsize=8)
def full_length_trajectories(env_id: str, steps: int) -> list[Trajectory]:
    """Return an episode of each kind that lasts ``steps`` steps.

    The shipped episodes last 150 steps at most. Callers share the result and must not modify it.

    :param steps: length of a full episode; 0: that of the environment's card.
    """
    length = steps or load_card(env_id).max_episode_steps
    shipped = load_check_trajectories(env_id)
    return [shipped[kind][0].extend(length) for kind in ("untrained", "motionless") if shipped.get(kind)]


def reversal_failures(
    names: Sequence[str], scores: Mapping[str, Sequence[float]], rollouts: Sequence[Trajectory], *, card: EnvironmentCard,
    threshold: float,
) -> list[CheckFailure]:  # fmt: skip
    """Return the failure of a judge that passes a rollout of a trained policy both ways, if it declares ``time_reversed``.

    A rollout that does not pass proves nothing: a policy that runs backwards shows the behaviour when it is played backwards.

    :param scores: the judge's scores by label, in the order of ``rollouts``.
    """
    if TIME_REVERSED not in names:
        return []
    pairs = list(zip(scores.get(ROLLOUT, ()), scores.get(ROLLOUT_REVERSED, ()), strict=True))
    passing = [place for place, pair in enumerate(pairs) if min(pair) >= threshold]
    if not passing:
        return []
    worst = max(passing, key=lambda place: pairs[place][1])
    forwards, backwards = pairs[worst]
    message = (
        f"a rollout of a trained policy scored {forwards:.3f}, and {backwards:.3f} when it was played backwards; expected a "
        f"score below the pass threshold {threshold:g} backwards, as the judge declares the null control {TIME_REVERSED!r}. "
        "Make the criteria depend on the direction of the motion, or withdraw this null control if a film of the behaviour "
        "that is played backwards still shows it"
    )
    seen = (
        f"the rollout: {describe(rollouts[worst], card)}; backwards: {describe(rollouts[worst].reverse_time(), card)}"
    )
    return [CheckFailure("null-control", 0, message, seen)]


def require_controls(names: Sequence[str], available: Mapping[str, Sequence[Trajectory]], env_id: str) -> None:
    """Check that controls exist and have episodes: a judge would always pass a control without any.

    :raises InvalidArgument: for an unknown control.
    :raises FailedPrecondition: for one without episodes.
    """
    for name in names:
        if name not in CONTROLS:
            raise InvalidArgument(field="null_controls", value=name, expected=f"one of {', '.join(CONTROLS)}")
        if not available.get(name):
            raise FailedPrecondition(
                f"null_controls: there are no recorded {name} episodes of {env_id}; "
                f"record them with `python -m dressage.envs.generate`",
                reason="CHECK_TRAJECTORIES_MISSING",
            )


def null_failures(
    names: Sequence[str],
    scores: Mapping[str, Sequence[float]],
    trajectories: Mapping[str, Sequence[Trajectory]],
    *,
    card: EnvironmentCard,
    threshold: float,
) -> list[CheckFailure]:
    """Return one failure for each control with an episode that reaches the threshold.

    :param scores: the judge's scores by control, in the order of ``trajectories``.
    """
    failures = []
    for name in dict.fromkeys(names):
        values = scores.get(name, ())
        if not values or max(values) < threshold:
            continue
        worst = int(np.argmax(values))
        message = (
            f"the null control {name!r} ({_MEANING[name]}) scored {values[worst]:.3f}; expected a score below the pass "
            f"threshold {threshold:g}. The judge passes an episode without the behaviour; make its criteria require the "
            "behaviour itself"
        )
        seen = f"score {values[worst]:.3f}; the episode: {describe(trajectories[name][worst], card)}"
        failures.append(CheckFailure("null-control", 0, message, seen))
    return failures


def describe(trajectory: Trajectory, card: EnvironmentCard) -> str:
    """Return a few statistics of an episode, which show a person or a model why it is not the behaviour."""
    parts = []
    for name in _QUOTED_FIELDS:
        if name in trajectory.fields and trajectory.fields[name].ndim == 1:
            unit = card.field(name).unit
            parts.append(f"mean {name} {np.mean(trajectory.fields[name], dtype=np.float64):.3g} {unit}")
    if "x_position" in trajectory.fields:
        way = trajectory.fields["x_position"]
        parts.append(f"net way along x {float(way[-1]) - float(way[0]):.3g} m")
    parts.append(
        f"mean |action| {np.mean(np.abs(trajectory.action), dtype=np.float64) if trajectory.num_steps else 0:.3g}"
    )
    parts.append(f"{trajectory.num_steps} steps of {card.time_step:g} s")
    return ", ".join(parts)


_MEANING = {
    "random": "uniformly random actions",
    "untrained": "a policy before any training",
    "motionless": "no action at all",
    TIME_REVERSED: "random and untrained episodes played backwards",
}
