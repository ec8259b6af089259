"""Write the measured sessions of an experiment of intents to the package, for the plans of sessions.

    python tools/measured_sessions.py experiments/results/intents

Reads ``results.jsonl`` of the folder and writes ``libs/dressage/training/measured_intents.toml``: an entry for each intent,
also for those that most sessions did not pass. A class of intents is the words of the intent without articles and the like.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.experiments.records import RESULTS
from dressage.sdk.texts import counted
from dressage.training.measured import INTENTS

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "libs/dressage/training" / INTENTS
_HEAD = """\
# Sessions of the experiment experiments/intents.yaml, written by tools/measured_sessions.py. `core_seconds` is the
# wall-clock time multiplied by the number of cores: an upper bound of the processor time.
"""
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


def text_of(results: Iterable[Mapping[str, Any]]) -> str:
    """Return the file of measured sessions."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in results:
        groups.setdefault((row["environment_id"], row["intent"]), []).append(row)
    return _HEAD + "".join(_entry(*names, rows) for names, rows in groups.items())


def _entry(environment: str, intent: str, rows: Sequence[Mapping[str, Any]]) -> str:
    passed = [row for row in rows if row["state"] == "succeeded" and row["seconds"]]
    seeds = int(rows[0]["settings"].get("seeds", 3))
    words = [word for word in re.findall(r"[a-z]+", intent.lower()) if word not in _WITHOUT_MEANING]
    cores = int(rows[0]["machine"].get("cores", 1))
    steps = statistics.median(row["env_steps"] for row in passed) / seeds if passed else 0
    seconds = statistics.median(row["seconds"] for row in passed) * cores if passed else 0
    values = {
        "environment": environment,
        "words": words,
        "intent": intent,
        "seeds": seeds,
        "steps": round(steps),
        "core_seconds": round(seconds),
        "source": f"experiments/results/intents: {counted(len(rows), 'session')} on {cores} cores",
        "sessions": len(rows),
        "passed": len(passed),
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join(["", "[[session]]", *lines, ""])


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--out", type=Path, default=TARGET, help="file to write [the package's]")
    given = parser.parse_args()
    given.out.write_text(text_of(read(given.folder / RESULTS)), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
