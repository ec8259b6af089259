"""Our trainer's own parts, measured: the learner's groups with a reward, as `dressage train` runs them.

Argument: one JSON object. ``environment``, ``members`` (lists of hyperparameters and seed), ``threads``, and one of
``seconds`` (steady rate; with ``bare`` also collection compared with bare stepping), ``updates`` (memory), ``target`` with
``max_steps`` (time to a return, or with ``measure`` "speed" to a forward speed) or ``record_steps`` (final returns). With
``on_device`` the environments run on a device; ``device`` then names it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHEETAH = r"""
LATEX = r"v_x - 0.1\lVert a\rVert^2"
TERMS = {"speed": "forward velocity, m/s", "effort": "squared action, times -0.1"}


def reward(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "effort": -0.1 * np.square(action).sum(-1)}
"""
WALKER = r"""
LATEX = r"v_x + 1 - 0.001\lVert a\rVert^2"
TERMS = {"speed": "forward velocity, m/s", "healthy": "1 for every step", "effort": "squared action, times -0.001"}


def reward(state, action, next_state, memory, np):
    speed = next_state.x_velocity
    return {"speed": speed, "healthy": np.ones_like(speed), "effort": -0.001 * np.square(action).sum(-1)}
"""
# Ant's stock reward counts contact forces too; 0.5 is its control cost's weight.
ANT = WALKER.replace("0.001", "0.5")
HUMANOID = r"""
LATEX = r"1.25 v_x + 5 - 0.1\lVert a\rVert^2"
TERMS = {"speed": "forward velocity, m/s, times 1.25", "healthy": "5 for every step", "effort": "squared action, times -0.1"}


def reward(state, action, next_state, memory, np):
    speed = next_state.x_velocity
    return {"speed": 1.25 * speed, "healthy": 5.0 * np.ones_like(speed), "effort": -0.1 * np.square(action).sum(-1)}
"""
# The stock reward divides the height by the physics time step, 0.003 s.
STANDUP = r"""
LATEX = r"z / 0.003 + 1 - 0.1\lVert a\rVert^2"
TERMS = {"height": "height of the torso, m, over 0.003 s", "effort": "1 - 0.1 times the squared action"}


def reward(state, action, next_state, memory, np):
    return {"height": next_state.z_position / 0.003, "effort": 1.0 - 0.1 * np.square(action).sum(-1)}
"""
PENDULUM = r"""
LATEX = r"1"
TERMS = {"upright": "1 for every step"}


def reward(state, action, next_state, memory, np):
    return {"upright": np.ones_like(next_state.x_position)}
"""
DOUBLE_PENDULUM = r"""
LATEX = r"10 - 0.01 x^2 - (z - 2)^2 - 0.001\omega_1^2 - 0.005\omega_2^2"
TERMS = {"upright": "10 for every step, less the tip's squared distance", "calm": "squared velocities of the poles"}


def reward(state, action, next_state, memory, np):
    tip = 0.01 * np.square(next_state.tip_x) + np.square(next_state.tip_height - 2.0)
    calm = -0.001 * np.square(next_state.pole_velocity) - 0.005 * np.square(next_state.pole2_velocity)
    return {"upright": 10.0 - tip, "calm": calm}
"""
REACHER = r"""
LATEX = r"-d - \lVert a\rVert^2"
TERMS = {"distance": "distance to the target, m, times -1", "effort": "squared action, times -1"}


def reward(state, action, next_state, memory, np):
    return {"distance": -next_state.distance_to_target, "effort": -np.square(action).sum(-1)}
"""
PUSHER = r"""
LATEX = r"-d_g - 0.5 d_o - 0.1\lVert a\rVert^2"
TERMS = {"goal": "distance from object to goal, m, times -1", "near": "distance to the object, m, times -0.5",
         "effort": "squared action, times -0.1"}


def reward(state, action, next_state, memory, np):
    near, effort = -0.5 * next_state.distance_to_object, -0.1 * np.square(action).sum(-1)
    return {"goal": -next_state.distance_object_to_goal, "near": near, "effort": effort}
"""
REWARDS = {
    "HalfCheetah-v5": CHEETAH,
    "Hopper-v5": WALKER,
    "Walker2d-v5": WALKER,
    "Ant-v5": ANT,
    "Humanoid-v5": HUMANOID,
    "HumanoidStandup-v5": STANDUP,
    "Swimmer-v5": CHEETAH.replace("0.1", "0.0001"),
    "Reacher-v5": REACHER,
    "Pusher-v5": PUSHER,
    "InvertedPendulum-v5": PENDULUM,
    "InvertedDoublePendulum-v5": DOUBLE_PENDULUM,
}
"""Rewards that follow the stock ones; returns are measured on stock Gymnasium by its own."""


def build(given: dict[str, Any], root: Path) -> list[Any]:
    """The learner's groups: of PPO on the stock reward, or of ``algorithm`` on ``reward`` for ``steps``."""
    from dressage.contracts.reward import load_reward
    from dressage.envs import EnvOptions, make_batch
    from dressage.envs.cards import load_card
    from dressage_trainer.backends.group import MemberSetup
    from dressage_trainer.backends.stacked import build_groups
    from dressage_trainer.messages import MemberTask, TrainSpec

    environment = given["environment"]
    card, source = load_card(environment), given.get("reward") or REWARDS[environment]
    members = tuple(MemberTask(f"m{i}", values, seed) for i, (values, seed) in enumerate(given["members"]))
    spec = TrainSpec(
        environment=environment,
        reward_source=source,
        members=members,
        threads=given["threads"],
        algorithm=given.get("algorithm", ""),
        steps_per_member=given.get("steps", 0),
        on_device=given.get("on_device", False),
    )
    module = load_reward(source, card)
    setup = MemberSetup(spec=spec, card=card, options=EnvOptions(), module=module, root=root)
    return list(build_groups(setup, make_batch=make_batch))


def rate(groups: list[Any], seconds: float, began: float) -> dict[str, float]:
    """Steady steps per second over all members, the processors that they take, and the seconds before the steady state."""

    def update() -> int:
        group = min(groups, key=lambda g: g.steps)
        before = group.steps
        group.advance(began=began)
        group.snapshot()  # as the learner keeps one of every update
        return (group.steps - before) * len(group.names)

    for _ in groups:
        update()
    warm, processor_seconds, steps, updates = time.perf_counter(), time.process_time(), 0, 0
    while updates < 3 * len(groups) or time.perf_counter() - warm < seconds:
        steps += update()
        updates += 1
    now = time.perf_counter()
    latest = [state.metrics for group in groups for state in group.states()]
    collecting = [m["collect_steps_per_second"] for m in latest]
    updating = [m["update_steps_per_second"] for m in latest]
    return {
        "rate": steps / (now - warm),
        "processors": (time.process_time() - processor_seconds) / (now - warm),
        "startup_seconds": warm - began,
        "collect_rate": sum(collecting) / len(collecting),
        "update_rate": sum(updating) / len(updating),
    }


def beside_bare_stepping(groups: list[Any], given: dict[str, Any], rounds: int = 9) -> dict[str, float]:
    """Measure collection and bare `mujoco.batch` in turn: the same simulations, states and actions.

    ``collect_share`` is the median over rounds of collection's speed by bare stepping's; ``bare_rate`` the latter's.
    """
    from support.bare import bare_batch

    ppo = groups[0].stacked
    environment = ppo.env.environment
    batch, step = bare_batch(given["environment"], environment.num_envs, given["threads"])
    shares, rates = [], []
    for _ in range(rounds):
        before = environment.snapshot()["simulation"]
        began = time.perf_counter()
        rollout = ppo.collector.collect_rollouts(ppo.weights)
        collecting = time.perf_counter() - began
        drawn = rollout.actions.swapaxes(0, 1).reshape(-1, environment.num_envs, environment.action_size)
        actions = drawn.clip(environment.action_low, environment.action_high)
        batch.state[:] = before
        began = time.perf_counter()
        for action in actions:
            step(action)
        stepping = time.perf_counter() - began
        shares.append(stepping / collecting)
        rates.append(len(actions) * environment.num_envs / stepping)
    return {"collect_share": statistics.median(shares), "bare_rate": statistics.median(rates)}


def memory(groups: list[Any], updates: int) -> dict[str, float]:
    """The largest resident memory of this process, in MiB, after some updates."""
    for _ in range(updates):
        for group in groups:
            group.advance(began=0.0)
            kept = group.snapshot()
    del kept
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return {"mebibytes": peak / 1024}


def time_to(groups: list[Any], given: dict[str, Any], began: float) -> dict[str, Any]:
    """Wall-clock seconds until the mean over members of the deterministic policy's stock return, or speed, reaches a target.

    Training is looked at every ``every`` steps of a member; the clock stands still while policies are evaluated, since a
    peer's recorded curve does not count that either.
    """
    target, every = float(given["target"]), int(given["every"])
    paused, due, seen = 0.0, every, []
    while (now := min(group.steps for group in groups)) < given["max_steps"]:
        min(groups, key=lambda g: g.steps).advance(began=began)
        if min(group.steps for group in groups) < due:
            continue
        due += every
        stopped = time.perf_counter()
        mean = mean_of_speeds if given.get("measure") == "speed" else mean_return
        value = mean(groups, given["environment"], int(given["episodes"]))
        seen.append([now, stopped - began - paused, value])
        paused += time.perf_counter() - stopped
        if value >= target:
            return {"seconds": seen[-1][1], "reached": True, "curve": seen}
    return {"seconds": time.perf_counter() - began - paused, "reached": False, "curve": seen}


def record(groups: list[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Whole trainings: the returns of each member's deterministic policy at their end."""
    while pending := [group for group in groups if group.steps < given["record_steps"]]:
        min(pending, key=lambda g: g.steps).advance(began=0.0)
    policies = [policy for group in groups for policy in group.policies()]
    return {"returns": [stock_returns(policy, given["environment"], int(given["episodes"])) for policy in policies]}


def stock_returns(member: Any, environment: str, episodes: int) -> list[float]:
    """Returns of a member's deterministic policy on stock Gymnasium."""
    from dressage.policies import Policy, PolicyCard

    policy = Policy(weights=member.weights, card=PolicyCard.from_dict(member.card))
    return returns_of(policy.act, environment, episodes)


def returns_of(act: Any, environment: str, episodes: int) -> list[float]:
    """Returns on stock Gymnasium of whatever maps (n, D) observations to (n, A) actions."""
    from dressage.envs.reference import rollout

    played = rollout(act, environment, range(1_000_000, 1_000_000 + episodes), batched=True)
    return [float(episode.reward.sum()) for episode in played]


def mean_return(groups: list[Any], environment: str, episodes: int) -> float:
    """Mean stock return over members and episodes."""
    members = [member for group in groups for member in group.policies()]
    values = [value for member in members for value in stock_returns(member, environment, episodes)]
    return sum(values) / len(values)


def mean_of_speeds(groups: list[Any], environment: str, episodes: int) -> float:
    """Mean forward speed over members and episodes, m/s, on stock Gymnasium."""
    from dressage.envs.reference import rollout
    from dressage.policies import Policy, PolicyCard
    from dressage_trainer.evaluation.rollouts import mean_speed

    values = []
    for member in (member for group in groups for member in group.policies()):
        policy = Policy(weights=member.weights, card=PolicyCard.from_dict(member.card))
        played = rollout(policy.act, environment, range(1_000_000, 1_000_000 + episodes), batched=True)
        values += [mean_speed(episode) or 0.0 for episode in played]
    return statistics.mean(values)


def device() -> dict[str, Any]:
    """The devices of JAX and Warp, and whether both are a GPU."""
    import jax
    import warp

    here, simulating = jax.devices()[0], warp.get_device()
    is_gpu = here.platform == "gpu" and bool(simulating.is_cuda)
    return {"name": here.device_kind if is_gpu else "not a GPU", "is_gpu": is_gpu, "jax": here.platform,
            "warp": str(simulating)}  # fmt: skip


def main() -> None:
    """Measures and prints one JSON object."""
    began, given = time.perf_counter(), json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        groups = build(given, Path(folder))
        if "target" in given:
            result = time_to(groups, given, began)
        elif "updates" in given:
            result = memory(groups, given["updates"])
        elif "record_steps" in given:
            result = record(groups, given)
        else:
            result = rate(groups, given["seconds"], began)
            if given.get("bare"):
                result |= beside_bare_stepping(groups, given)
        for group in groups:
            group.close()
    if given.get("on_device"):
        result["device"] = device()
    print(json.dumps(result))
