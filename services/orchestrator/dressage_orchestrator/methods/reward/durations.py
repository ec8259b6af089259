"""How long an iteration will take.

The estimate uses the speed of earlier runs of the kind where there are any, and else the speed in the environment's preset.
Simulation is most of a stacked training's time.
"""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from dressage.training.preset import load_preset

_SB3_SHARE = 0.45
"""Speed of Stable-Baselines3's PPO, one member after the other, as a share of a stacked training's on one core (0.4 to 0.7)."""
_SAC = 40.0
"""Environment steps per second of SAC, which takes a gradient step for each of them."""
_EVALUATION_COST = 2.0
"""Stacked steps that take as long as one step of evaluation, which plays reference environments one at a time."""
_RUN_SECONDS = 15.0
"""Starting a trainer and compiling its update."""
_ITERATION_SECONDS = 10.0
"""Checking, judging and rendering."""


def kind_of_run(spec: v1.SessionSpec) -> str:
    """Return the name under which equally fast runs are counted: the environment, and who trains."""
    environment = spec.environment.removeprefix("environments/")
    return (
        environment if spec.reward.backend == "jax" else f"{environment} {spec.reward.backend} {spec.reward.algorithm}"
    )


def iteration_seconds(
    spec: v1.SessionSpec, *, env_steps: int, evaluation_env_steps: int, cores: int, known: float | None
) -> float:
    """Return the expected duration of an iteration of a filled spec, in seconds.

    :param env_steps: of training, over all members.
    :param known: environment steps per second of earlier runs of the kind, start and evaluation counted; None if none.
    """
    if known is not None:
        return env_steps / known + _ITERATION_SECONDS
    core = load_preset(spec.environment.removeprefix("environments/")).steps_per_second
    stacked = core * cores
    speed = stacked if spec.reward.backend == "jax" else _SAC if spec.reward.algorithm == "sac" else core * _SB3_SHARE
    evaluation = evaluation_env_steps * _EVALUATION_COST / stacked
    return env_steps / speed + evaluation + _RUN_SECONDS + _ITERATION_SECONDS
