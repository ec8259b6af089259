"""Resident memory of a training of 9 members x 16 environments, compared with one SB3 PPO process with 16 environments.

Ours: the largest resident size of the one learner process, snapshots included. The peer: all of its processes
together (resident sizes; shared pages counted in each, as its users see them; by proportional shares in the notes).
``limit`` is the goal, 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from support.children import available, measure, versions

ENVIRONMENT = "HalfCheetah-v5"
MEMBERS, NUM_ENVS = 9, 16
GOAL = 1024.0


def main() -> int:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--updates", type=int, default=5, help="updates of ours before the figure is read")
    given = parser.parse_args()
    ours: list[float] = []
    peer: list[dict[str, Any]] = []
    for repeat in range(given.repeats):
        members = [({"num_envs": NUM_ENVS, "num_steps": 128}, seed) for seed in range(MEMBERS)]
        task = {"environment": ENVIRONMENT, "members": members, "threads": given.cores, "updates": given.updates}
        ours.append(measure("ours", task, threads=given.cores, cores=given.cores)["mebibytes"])
        other = {
            "environment": ENVIRONMENT,
            "setting": "preset",
            "num_envs": NUM_ENVS,
            "seed": repeat,
            "memory_updates": 1,
        }
        peer.append(measure("peer", other, threads=1, cores=given.cores))
    mine, theirs = statistics.median(ours), statistics.median(result["mebibytes"] for result in peer)
    report = {
        "name": "memory",
        "what": f"Memory of a training of {MEMBERS} members; peer: one member; the limit is the goal, 1 GiB",
        "unit": "MiB resident",
        "ours": round(mine),
        "peer": round(theirs),
        "ratio": round(theirs / mine, 1),
        "limit": GOAL,
        "share_of_limit": round(mine / GOAL, 3),
        "repeats": given.repeats,
        "spread": {"ours": [round(min(ours)), round(max(ours))],
                   "peer": [round(min(p["mebibytes"] for p in peer)), round(max(p["mebibytes"] for p in peer))]},
        "cores": given.cores,
        "versions": versions(),
        "notes": (
            f"Ours: {MEMBERS} members x {NUM_ENVS} environments on {ENVIRONMENT}, one process. The peer: one member with "
            f"{NUM_ENVS} environments in {peer[0]['processes']} processes; "
            f"{statistics.median(p['pss_mebibytes'] for p in peer):,.0f} MiB by proportional shares. "
            f"Nine members would be nine times that. The limit is the goal."
        ),
    }  # fmt: skip
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
