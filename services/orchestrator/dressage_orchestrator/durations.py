"""How long an iteration will take.

Where a run of the kind has been here before, its speed tells; else what was measured elsewhere does: members trained with the
environment's preset, by processor time, on an AMD EPYC. Simulation is most of a stacked training's time.
"""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1

_STACKED: dict[str, float] = {
    "HalfCheetah-v5": 11_000.0,
    "Hopper-v5": 5_500.0,
    "Walker2d-v5": 4_700.0,
    "Ant-v5": 2_300.0,
    "Humanoid-v5": 2_100.0,
    "HumanoidStandup-v5": 1_300.0,
    "Swimmer-v5": 8_900.0,
    "Reacher-v5": 14_000.0,
    "Pusher-v5": 10_000.0,
    "InvertedPendulum-v5": 16_000.0,
    "InvertedDoublePendulum-v5": 7_200.0,
    "CartPole-v1": 35_000.0,
}
"""Environment steps per second and core over all members of a stacked training."""
_OTHER = 5_000.0
"""The same for an environment that was not measured."""
_SB3_SHARE = 0.45
"""Speed of PPO by Stable-Baselines3, one member after the other, by that of one core of a stacked training (0.4 to 0.7)."""
_SAC = 40.0
"""Environment steps per second of SAC, which takes a gradient step for each of them."""
_EVALUATION_COST = 2.0
"""Stacked steps that take as long as a step of evaluation, which is in reference environments, one at a time."""
_RUN_SECONDS = 15.0
"""Starting a trainer and compiling its update."""
_ITERATION_SECONDS = 10.0
"""Checking, judging and rendering."""


def kind_of_run(spec: v1.SessionSpec) -> str:
    """What runs of a filled spec have in common that makes them equally fast: the environment, and who trains."""
    environment = spec.environment.removeprefix("environments/")
    return (
        environment if spec.reward.backend == "jax" else f"{environment} {spec.reward.backend} {spec.reward.algorithm}"
    )


def iteration_seconds(
    spec: v1.SessionSpec, *, env_steps: int, evaluation_env_steps: int, cores: int, known: float | None
) -> float:
    """How long an iteration of a filled spec is expected to take.

    :param env_steps: of training, over all members.
    :param known: environment steps per second of earlier runs of the kind, start and evaluation counted; None if none.
    """
    if known is not None:
        return env_steps / known + _ITERATION_SECONDS
    core = _STACKED.get(spec.environment.removeprefix("environments/"), _OTHER)
    stacked = core * cores
    speed = stacked if spec.reward.backend == "jax" else _SAC if spec.reward.algorithm == "sac" else core * _SB3_SHARE
    evaluation = evaluation_env_steps * _EVALUATION_COST / stacked
    return env_steps / speed + evaluation + _RUN_SECONDS + _ITERATION_SECONDS
