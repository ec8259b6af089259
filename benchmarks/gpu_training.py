"""Training on the pool ``gpu`` compared with the CPU pool: environment steps per second, time to a speed, and cost.

Ours: members with thousands of environments each on a device, by the learner's own parts and the device's preset. The peer: as
many members on CPU cores, with the environment's preset. For HalfCheetah-v5 also the wall-clock time until the mean speed of
the deterministic policies on stock Gymnasium reaches ``--speed``, from the start of the process, compilation included,
evaluations not. ``ours`` and ``peer`` are environment steps per second trained in the first environment; ``environments`` has
all.

Cost needs no price: ``cores_per_device`` is the number of cores of the CPU pool that train as fast as the device, and
``dollars`` compares both for prices that are given.

Without a GPU it refuses, so that no figure of a CPU is taken for one of a GPU. ``--smoke`` runs it with tiny sizes on whatever
device there is, to try the script; the object then names the device, "not a GPU" on the CPU devices of JAX and Warp.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from dressage.sandbox.gpu import gpu_access
from dressage.training.preset import device_preset
from support.children import available, measure, versions

ENVIRONMENTS = ("HalfCheetah-v5", "Humanoid-v5")
FASTEST = "HalfCheetah-v5"
"""The environment with a time to a speed."""
WHAT, UNIT = "Training on a device", "environment steps/s"
GOAL = 1_000_000
"""Environment steps per second trained with one H100."""
PACKAGES = ("mujoco-warp", "warp-lang")
SMOKE: dict[str, Any] = dict(num_envs=16, num_steps=8, minibatch_size=64, epochs=2, hidden_sizes=[16])


@dataclass(frozen=True)
class Sizes:
    """What is measured on both pools.

    :param members: trained together.
    :param device: hyperparameters of a member on the device that differ from the environment's preset.
    :param cpu: the same for the CPU pool.
    :param seconds: steady seconds in a measurement of the rate.
    :param max_steps: environment steps of a member after which the time to a speed is given up.
    :param episodes: evaluated for each member.
    :param speed: m/s.
    """

    members: int
    device: dict[str, Any]
    cpu: dict[str, Any]
    seconds: float
    max_steps: int
    episodes: int
    speed: float


def task(environment: str, sizes: Sizes, *, on_device: bool, cores: int, seed: int) -> dict[str, Any]:
    """The task of `support.ours` on one of the pools."""
    values = sizes.device if on_device else sizes.cpu
    members = [(values, seed + member) for member in range(sizes.members)]
    return {"environment": environment, "members": members, "threads": cores, "on_device": on_device}


def rates(environment: str, sizes: Sizes, *, cores: int, repeats: int) -> dict[str, Any]:
    """Measure both pools in turn."""
    pools: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for repeat in range(repeats):
        for on_device, results in pools.items():
            given = task(environment, sizes, on_device=on_device, cores=cores, seed=repeat * sizes.members)
            results.append(measure("ours", given | {"seconds": sizes.seconds}, threads=cores, cores=cores))
    ours, peer = ([result["rate"] for result in results] for results in pools.values())
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return {
        "ours": round(mine),
        "peer": round(theirs),
        "ratio": round(mine / theirs, 3),
        "cores_per_device": round(mine * cores / theirs, 3),
        "startup_seconds": round(statistics.median(result["startup_seconds"] for result in pools[True]), 1),
        "spread": {"ours": [round(min(ours)), round(max(ours))], "peer": [round(min(peer)), round(max(peer))]},
        "device": pools[True][0]["device"],
        "members": sizes.members,
        "worlds": sizes.members * sizes.device["num_envs"],
    }


def times(sizes: Sizes, *, cores: int) -> dict[str, Any]:
    """Measure the time to the speed on both pools."""
    answer: dict[str, Any] = {"target": sizes.speed}
    for on_device, side in ((True, "ours"), (False, "peer")):
        given = task(FASTEST, sizes, on_device=on_device, cores=cores, seed=0)
        rollout = sizes.device["num_envs"] * sizes.device["num_steps"]
        looks = {"target": sizes.speed, "measure": "speed", "every": rollout, "max_steps": sizes.max_steps}
        result = measure("ours", given | looks | {"episodes": sizes.episodes}, threads=cores, cores=cores)
        answer[side] = {"seconds": round(result["seconds"], 1), "reached": result["reached"]}
    return answer


def dollars(result: dict[str, Any], *, cores: int, device_hour: float, core_hour: float) -> dict[str, float]:
    """Dollars for 10^9 environment steps on each pool, at the prices of an hour."""
    hours = {side: 1e9 / result[side] / 3600 for side in ("ours", "peer")}
    return {"ours": round(hours["ours"] * device_hour, 2), "peer": round(hours["peer"] * cores * core_hour, 2)}


def report(measured: dict[str, Any], timed: dict[str, Any] | None, *, cores: int, repeats: int) -> dict[str, Any]:
    """The object that is printed."""
    name, first = next(iter(measured.items()))
    device = first["device"]["name"]
    lines = [
        f"{environment}: {row['ours']:,} on the device ({device}), {row['peer']:,} on {cores} cores; the device trains "
        f"as fast as {row['cores_per_device']:g} cores"
        for environment, row in measured.items()
    ]
    table = [
        {"what": f"{WHAT} ({device}), {environment}", "unit": UNIT, "share_of_limit": None}
        | {key: row[key] for key in ("ours", "peer", "ratio")}
        for environment, row in measured.items()
    ]
    return {
        "name": "gpu_training",
        "what": f"{WHAT}, {name}",
        "unit": UNIT,
        **{key: first[key] for key in ("ours", "peer", "ratio", "spread")},
        "limit": None,
        "share_of_limit": None,
        "goal": GOAL,
        "repeats": repeats,
        "cores": cores,
        "versions": versions() | {package: metadata.version(package) for package in PACKAGES},
        "device": first["device"],
        "environments": measured,
        "time_to_speed": timed,
        "rows": table,
        "notes": ". ".join(lines) + ".",
    }


def main() -> int:
    """Measure and print the object."""
    preset = device_preset().ppo
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", action="append", choices=ENVIRONMENTS, help="repeatable; all if none is named")
    parser.add_argument("--worlds", type=int, default=preset["num_envs"], help="environments of a member on the device")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--cores", type=int, default=available(), help="of the CPU pool")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="steady seconds in a measurement")
    parser.add_argument("--speed", type=float, default=5.0, help="m/s")
    parser.add_argument("--max-steps", type=int, default=200_000_000, help="of a member, until the speed is given up")
    parser.add_argument("--device-hour", type=float, help="dollars for an hour of the device; with --core-hour")
    parser.add_argument("--core-hour", type=float, help="dollars for an hour of a core")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, one repeat, on whatever device there is")
    given = parser.parse_args()
    if (given.device_hour is None) != (given.core_hour is None):
        parser.error("--device-hour and --core-hour: give both or none")
    if gpu_access() is None and not given.smoke:
        print(
            "There is no GPU, and figures of a CPU would mean nothing here; --smoke tries the script.", file=sys.stderr
        )
        return 2
    device = {**preset, "num_envs": given.worlds}
    device["minibatch_size"] = min(device["minibatch_size"], given.worlds * device["num_steps"])
    sizes = Sizes(given.members, device, {}, given.seconds, given.max_steps, 20, given.speed)
    repeats = given.repeats
    if given.smoke:
        rollout = SMOKE["num_envs"] * SMOKE["num_steps"]
        sizes, repeats = Sizes(given.members, SMOKE, SMOKE, 0.1, 2 * rollout, 1, given.speed), 1
    measured: dict[str, Any] = {}
    for name in given.env or ENVIRONMENTS:
        measured[name] = rates(name, sizes, cores=given.cores, repeats=repeats)
        if not (measured[name]["device"]["is_gpu"] or given.smoke):
            print(
                f"The GPU was not used: {measured[name]['device']}. Install JAX for CUDA (docs/gpu.md).",
                file=sys.stderr,
            )
            return 2
    if given.device_hour is not None:
        prices = {"cores": given.cores, "device_hour": given.device_hour, "core_hour": given.core_hour}
        for result in measured.values():
            result["dollars"] = dollars(result, **prices)
    timed = times(sizes, cores=given.cores) if FASTEST in measured else None
    print(json.dumps(report(measured, timed, cores=given.cores, repeats=repeats)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
