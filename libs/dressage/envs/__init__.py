"""Environments: cards, batched simulation, stock reference episodes, recorded trajectories.

Importing this package loads no simulator; `make_batch` and `reference` do when they are used.
"""

from dressage.envs.batch import make_batch
from dressage.envs.cards import (
    ENVIRONMENT_IDS,
    PROGRAM_ENVIRONMENT_IDS,
    REWARD_ENVIRONMENT_IDS,
    SEARCH_ENVIRONMENT_IDS,
    ActionComponent,
    EnvironmentCard,
    Field,
    ObservationComponent,
    list_cards,
    load_card,
)
from dressage.envs.options import EnvOptions
from dressage.envs.protocol import BatchEnv, BatchStep
from dressage.envs.state import State
from dressage.envs.trajectory import Trajectory, load_check_trajectories

__all__ = [
    "ENVIRONMENT_IDS",
    "PROGRAM_ENVIRONMENT_IDS",
    "REWARD_ENVIRONMENT_IDS",
    "SEARCH_ENVIRONMENT_IDS",
    "ActionComponent",
    "BatchEnv",
    "BatchStep",
    "EnvOptions",
    "EnvironmentCard",
    "Field",
    "ObservationComponent",
    "State",
    "Trajectory",
    "list_cards",
    "load_card",
    "load_check_trajectories",
    "make_batch",
]
