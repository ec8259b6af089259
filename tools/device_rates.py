"""Write the rates of committed results of `benchmarks/gpu_training.py` to the package, for the choice of the pool.

    python tools/device_rates.py benchmarks/results/gpu_training.json

Each file holds the object that the benchmark printed. Results without a GPU are refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.training.device_rates import FILE

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "libs/dressage/training" / FILE
_HEAD = "# Written by tools/device_rates.py from committed results of benchmarks/gpu_training.py.\n"


def text_of(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the file of rates.

    :param results: what the benchmark printed, by the path of its file in the repository.
    :raises SystemExit: for a result without a GPU.
    """
    return _HEAD + "".join(part for path, result in results.items() for part in _entries(path, result))


def _entries(path: str, result: Mapping[str, Any]) -> Iterator[str]:
    for environment, row in result["environments"].items():
        if not row["device"]["is_gpu"]:
            sys.exit(f"{path}: {environment} was not measured on a GPU (device: {row['device']['name']})")
        values = {
            "environment": environment,
            "device": row["device"]["name"],
            "members": row["members"],
            "worlds": row["worlds"],
            "steps_per_second": float(row["ours"]),
            "startup_seconds": float(row["startup_seconds"]),
            "source": path,
        }
        yield "\n[[rate]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    args = parser.parse_args(arguments)
    paths = [path.resolve() for path in args.results]
    TARGET.write_text(text_of({str(path.relative_to(ROOT)): json.loads(path.read_text("utf-8")) for path in paths}))


if __name__ == "__main__":
    main()
