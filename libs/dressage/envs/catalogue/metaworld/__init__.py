"""Tasks of Meta-World for a robot arm."""

from __future__ import annotations

from typing import Any

from dressage.envs.packs.simulators import report_success
from dressage.envs.packs.words import Words

_STEPS = 500


def _words(title: str, task: str, target: float, intent: str) -> Words:
    def scene(prefix: str, when: str) -> list[tuple[str, str, str]]:
        hand = [(f"{prefix}hand_{axis}", "m", f"position of the gripper along {axis}{when}") for axis in "xyz"]
        opening = [(f"{prefix}gripper", "1", f"opening of the gripper{when}, 0 = closed, 1 = open")]
        things = []
        for number, thing in ((1, "the first object"), (2, "the second object, 0 if there is none")):
            things += [(f"{prefix}object{number}_{axis}", "m", f"{thing}: {axis}{when}") for axis in "xyz"]
            things += [
                (f"{prefix}object{number}_q{part}", "1", f"{thing}: quaternion {part}{when}") for part in range(4)
            ]
        return [*hand, *opening, *things]

    goal = [(f"goal_{axis}", "m", f"{axis} of the goal") for axis in "xyz"]
    return Words(
        title=title,
        description=(
            f"A Sawyer robot arm with a parallel gripper above a table. {task} The gripper moves by small displacements; x "
            "is to the right, y away from the robot, z up. Objects and goals are placed anew for each episode."
        ),
        observation=[*scene("", ""), *scene("previous_", ", one step earlier"), *goal],
        action=[
            *((f"move_{axis}", "1", f"displacement of the gripper along {axis}, 1 = 1 cm at most") for axis in "xyz"),
            ("grip", "1", "force of the gripper: 1 = close, -1 = open"),
        ],
        stock_reward="Meta-World's shaped reward for progress on the task, at most 10 a step",
        termination="never before the time limit.",
        intents=(intent,),
        time_step=0.0125,
        target=target,
    )


WORDS: dict[str, Words] = {
    # An open gripper that waits in front of the button earns 600; a pressed button pays 8 for each step.
    "metaworld-button-press-v3": _words(
        "arm that presses a button", "It presses a button on a box, along y.", 3500.0, "press the button"
    ),
    "metaworld-door-open-v3": _words(
        "arm that opens a door", "It opens a door by its handle.", 4000.0, "open the door"
    ),
    "metaworld-drawer-open-v3": _words(
        "arm that opens a drawer", "It pulls a drawer open by its handle.", 3800.0, "open the drawer"
    ),
    "metaworld-pick-place-v3": _words(
        "arm that picks and places",
        "It lifts a puck and holds it at the goal.",
        3800.0,
        "pick up the puck and hold it at the goal",
    ),
}


def make(env_id: str, steps: int | None) -> Any:
    """Return the environment, in a process of the pack."""
    import gymnasium
    from metaworld import env_dict

    class SeededEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Goals follow the seed of `reset`: Meta-World draws them when the environment is made."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            stock: Any = self.env.unwrapped
            stock.seed(seed)
            return self.env.reset(seed=seed, options=options)

    task = env_id.removeprefix("metaworld-")
    inner = env_dict.ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}-goal-observable"](seed=0)
    inner._freeze_rand_vec, inner.seeded_rand_vec = False, True
    inner.max_path_length = 10**9  # the time limit below ends the episode, without an error
    limited = gymnasium.wrappers.TimeLimit(SeededEnv(inner), max_episode_steps=steps or _STEPS)
    return report_success(limited, "success", ever=True)
