"""mjlab's quadruped Unitree Go1 on flat ground."""

from __future__ import annotations

from dressage.envs.packs.words import Task

TASK = Task(
    "quadruped Unitree Go1 on flat ground",
    "mjlab's Unitree Go1 on a plane. The policy follows a commanded velocity that changes during the episode; positions "
    "and forces of the joints are randomised a little, and the robot is pushed at times. The action moves the targets "
    "of the joints' position control around the standing pose.",
    ("walk forward", "walk backward", "turn on the spot", "stand still"),
    5.0,
)
