"""HumanoidStandup-v5: the humanoid starts on its back and is to stand up."""

from __future__ import annotations

from dressage.envs.catalogue.humanoid import Humanoid
from dressage.envs.fields import BoundField
from dressage.envs.layout import Layout
from dressage.envs.namespace import library_of, never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import Outcome, Rules, contact_cost, control_cost

_CONTROL_COST = 0.1
_IMPACT_COST, _IMPACT_COST_LIMIT = 0.5e-6, 10.0
# Stock divides by the physics time step, not by the environment's; `fields` holds it to the model's.
_PHYSICS_STEP = 0.003


class HumanoidStandup(Humanoid):
    """Stock reward: height over the physics time step, plus 1, minus control and impact cost; no termination."""

    title = "two-legged robot on its back"
    description = (
        "A human-like robot starts on its back on level ground, its head towards -x: torso with head, waist, pelvis, two "
        "legs of thigh, shin and foot, two arms of upper and lower arm, moved by 17 joint motors. It can sit up, roll "
        "over, kneel, crawl and stand."
    )
    termination = "never; the episode ends at its time limit only."
    stock_reward = (
        "z_position / (physics time step) + 1 - 0.1 * (sum of squared actions) "
        "- 5e-7 * (sum of squared contact forces and torques, at most 10 in all)"
    )
    example_intents = (
        "stand up",
        "sit up",
        "stand up and stay standing",
        "roll over onto the belly",
        "raise both arms while lying still",
        "kneel",
        "crawl",
    )
    can_terminate = False
    stands_as = "Humanoid-v5"

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        up = (after["qpos"][:, 2] - 0) / _PHYSICS_STEP
        effort = control_cost(action.astype(up.dtype), _CONTROL_COST)
        impact = library_of(up).minimum(contact_cost(after, _IMPACT_COST), _IMPACT_COST_LIMIT)
        terms = {"reward_linup": up, "reward_quadctrl": -effort, "reward_impact": -impact}
        return Outcome(up - effort - impact + 1, never(up), terms)

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        qpos = after["qpos"]
        return {
            "x_position": qpos[:, 0],
            "y_position": qpos[:, 1],
            "z_distance_from_origin": qpos[:, 2] - float(initial_qpos[2]),
            "tendon_length": after["ten_length"],
            "tendon_velocity": after["ten_velocity"],
        }

    def fields(self, layout: Layout) -> list[BoundField]:
        if layout.timestep != _PHYSICS_STEP:
            raise AssertionError(f"humanoidstandup.xml steps by {layout.timestep} s")
        return super().fields(layout)

    def reference(self, layout: Layout) -> str:
        return "flat on its back, head towards -x"


TASK = HumanoidStandup
