"""A traffic light of one intersection, of SUMO."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dressage.envs.packs.words import Words

_STEPS = 500
_DENSITIES = [
    *((f"phase_{phase}", "1", f"1 if green phase {phase} is active") for phase in range(2)),
    ("min_green", "1", "1 once the active phase has lasted its minimum of 5 s, so that a change takes effect"),
    *((f"density_{lane}", "1", f"share of incoming lane {lane} that vehicles cover, 0 to 1") for lane in range(4)),
    *((f"queue_{lane}", "1", f"share of incoming lane {lane} that halted vehicles cover, 0 to 1") for lane in range(4)),
]

WORDS = {
    "Traffic-single-intersection-v0": Words(
        title="traffic light of an intersection",
        description=(
            "A traffic light of one intersection with two phases. Every 5 seconds it keeps or changes the green phase; a "
            "change costs 2 seconds of yellow. Vehicles arrive at random."
        ),
        observation=_DENSITIES,
        action=[("phase", "1", "number of the green phase from now on: 0 or 1")],
        stock_reward="decrease of the waiting time of all vehicles, in units of 100 s",
        termination="never before the time limit.",
        intents=("keep the waiting times of vehicles short",),
        time_step=5.0,
        target=-2.0,
    )
}


def make(env_id: str, steps: int | None) -> Any:
    """Return the environment, in a process of the pack."""
    import gymnasium
    import sumo

    os.environ["SUMO_HOME"] = sumo.SUMO_HOME
    os.environ["LIBSUMO_AS_TRACI"] = "1"  # in this process, because it may start no other
    import sumo_rl

    class SeededEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
        """SUMO takes a seed of 31 bits."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed is not None:
                stock: Any = self.env.unwrapped
                stock.sumo_seed = seed % 2**31
            return self.env.reset(seed=None, options=options)

    folder = Path(sumo_rl.__file__).parent / "nets" / "single-intersection"
    inner = gymnasium.make(
        "sumo-rl-v0",
        disable_env_checker=True,
        net_file=str(folder / "single-intersection.net.xml"),
        route_file=str(folder / "single-intersection.rou.xml"),
        use_gui=False,
        num_seconds=10**6,
        sumo_warnings=False,
    )
    return gymnasium.wrappers.TimeLimit(SeededEnv(inner), max_episode_steps=steps or _STEPS)
