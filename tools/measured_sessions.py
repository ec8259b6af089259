"""Write the measured sessions of an experiment of intents to the package, for the plans of sessions.

    python tools/measured_sessions.py experiments/results/intents

Reads ``results.jsonl`` of the folder and writes ``measured.toml`` into the folders of the environments: an entry for each
intent, also for those that most sessions did not pass. A class of intents is the words of the intent without articles and the
like. `core_seconds` is the wall-clock time multiplied by the number of cores: an upper bound of the processor time.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.envs.catalogue import catalogue
from dressage.experiments.records import RESULTS
from dressage.sdk.texts import quantity
from dressage.training.measured import FILE

_HEAD = "# Written by tools/measured_sessions.py.\n"
_WITHOUT_MEANING = frozenset({"a", "an", "and", "at", "in", "it", "of", "on", "the", "to"})


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results; of several lines of a cell the last one."""
    lines = path.read_text("utf-8").splitlines()
    cells = {row["cell"]: row for row in map(_row, lines) if row}
    return list(cells.values())


def _row(line: str) -> dict[str, Any]:
    """Return a line's values; none for a line that was cut off."""
    try:
        row: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return row


def texts_of(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the file of measured sessions of each environment."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in results:
        groups.setdefault((row["environment_id"], row["intent"]), []).append(row)
    texts: dict[str, str] = {}
    for (environment, intent), rows in groups.items():
        texts[environment] = texts.get(environment, _HEAD) + _entry(intent, rows)
    return texts


def _entry(intent: str, rows: Sequence[Mapping[str, Any]]) -> str:
    passed = [row for row in rows if row["state"] == "succeeded" and row["seconds"]]
    seeds = int(rows[0]["settings"].get("seeds", 3))
    words = [word for word in re.findall(r"[a-z]+", intent.lower()) if word not in _WITHOUT_MEANING]
    cores = int(rows[0]["machine"].get("cores", 1))
    steps = statistics.median(row["env_steps"] for row in passed) / seeds if passed else 0
    seconds = statistics.median(row["seconds"] for row in passed) * cores if passed else 0
    values = {
        "words": words,
        "intent": intent,
        "seeds": seeds,
        "steps": round(steps),
        "core_seconds": round(seconds),
        "source": f"experiments/results/intents: {quantity(len(rows), 'session')} on {cores} cores",
        "sessions": len(rows),
        "passed": len(passed),
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join(["", "[[session]]", *lines, ""])


def main() -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--out", type=Path, help="folder to write ENVIRONMENT.toml to [the environments' own folders]")
    args = parser.parse_args()
    for environment, text in texts_of(read(args.folder / RESULTS)).items():
        path = args.out / f"{environment}.toml" if args.out else catalogue()[environment].path / FILE
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
