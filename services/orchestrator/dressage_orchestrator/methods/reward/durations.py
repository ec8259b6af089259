"""How long an iteration will take.

The estimate uses the speed of earlier runs of the kind where there are any, and else the speed in the environment's preset.
Simulation is most of a stacked training's time.
"""

from __future__ import annotations

from collections.abc import Iterable

from dressage.api.v1 import session_pb2 as v1
from dressage.training.preset import Preset, load_preset

from dressage_orchestrator.lifecycle.method import Load

_SB3_SHARE = 0.45
"""Speed of Stable-Baselines3's PPO, one member after the other, as a share of a stacked training's on one core (0.4 to 0.7)."""
_SB3_SAC = 40.0
"""Environment steps per second of Stable-Baselines3's SAC, which takes a gradient step for each of them."""
_SAC_UPDATES = 130.0
"""Gradient steps per second of the stacked SAC on one core, with its default networks and minibatches."""
_EVALUATION_COST = 2.0
"""Stacked steps that take as long as one step of evaluation, which plays reference environments one at a time."""
_RUN_SECONDS = 15.0
"""Starting a trainer and compiling its update."""
_ITERATION_SECONDS = 10.0
"""Checking, judging and rendering."""


def kind_of_run(spec: v1.SessionSpec) -> str:
    """Return the name under which equally fast runs are counted: the environment, and who trains."""
    environment, reward = spec.environment.removeprefix("environments/"), spec.reward
    stacked_ppo = reward.backend == "jax" and reward.algorithm == "ppo"
    return environment if stacked_ppo else f"{environment} {reward.backend} {reward.algorithm}"


def load_of(environment: str, members: Iterable[v1.Hyperparameters], steps: int) -> Load:
    """Return the load of a training.

    :param environment: id.
    :param members: hyperparameters of each; what is not set is the preset's.
    :param steps: environment steps of a member.
    """
    default = load_preset(environment).ppo.num_envs
    worlds = [given.num_envs if given.HasField("num_envs") else default for given in members]
    return Load(len(worlds), sum(worlds), steps)


def iteration_seconds(
    spec: v1.SessionSpec, *, env_steps: int, evaluation_env_steps: int, cores: int, known: float | None
) -> float:
    """Return the expected duration of an iteration of a filled spec, in seconds.

    :param env_steps: of training, over all members.
    :param known: environment steps per second of earlier runs of the kind, start and evaluation counted; None if none.
    """
    if known is not None:
        return env_steps / known + _ITERATION_SECONDS
    preset = load_preset(spec.environment.removeprefix("environments/"))
    evaluation = evaluation_env_steps * _EVALUATION_COST / (preset.steps_per_second * cores)
    return env_steps / _speed(spec, preset, cores=cores) + evaluation + _RUN_SECONDS + _ITERATION_SECONDS


def _speed(spec: v1.SessionSpec, preset: Preset, *, cores: int) -> float:
    """Return the environment steps per second over all members, while they train."""
    core = preset.steps_per_second  # the stacked PPO's
    sac, sb3 = spec.reward.algorithm == "sac", spec.reward.backend == "sb3"
    if sb3:
        return _SB3_SAC if sac else core * _SB3_SHARE
    if not sac:
        return core * cores
    given = spec.reward.configs[0].hyperparameters
    ratio = given.updates_per_step if given.HasField("updates_per_step") else preset.sac.updates_per_step
    return cores / (1.0 / core + ratio / _SAC_UPDATES)
