"""Runs `benchmarks/*.py` one after the other and writes their table into `docs/performance.md`.

Run it by ``make bench``, on a machine that does nothing else. Each benchmark prints one JSON object with the keys of
`KEYS`; what it measures and how is said in its own docstring. ``bench.py NAME …`` runs only those; rows of others stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- benchmarks: begin (written by `make bench`) -->", "<!-- benchmarks: end -->"
DATA_BEGIN, DATA_END = "<!-- data", "-->"
TIMEOUT_SECONDS = 4 * 3600
KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "unit": str,
    "ours": (int, float),
    "peer": (int, float, type(None)),
    "ratio": (int, float, type(None)),
    "limit": (int, float, type(None)),
    "share_of_limit": (int, float, type(None)),
    "repeats": int,
    "spread": dict,
    "cores": int,
    "versions": dict,
    "notes": str,
}
Result = Mapping[str, Any]


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def run(path: Path) -> Result:
    """One benchmark's object.

    :raises SystemExit: it failed, or printed something else.
    """
    print(f"{path.stem} …", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"{path.name} ended with status {done.returncode}")
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise SystemExit(f"{path.name} printed no JSON object: {done.stdout[-200:]!r}") from None
    return checked(result, path)


def checked(result: Any, path: Path) -> Result:
    """The object, if it has every key with the right type, and the file's name."""
    if not isinstance(result, dict):
        raise SystemExit(f"{path.name}: expected a JSON object, got {type(result).__name__}")
    for key, kind in KEYS.items():
        if key not in result or not isinstance(result[key], kind):
            raise SystemExit(f"{path.name}: {key} is {result.get(key)!r}, expected {kind}")
    if result["name"] != path.stem:
        raise SystemExit(f"{path.name}: name is {result['name']!r}, expected {path.stem!r}")
    return result


def number(value: float | None) -> str:
    """A figure as the table shows it."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(results: Iterable[Result]) -> list[str]:
    """The table's lines, with each benchmark's notes below it."""
    rows = list(results)
    lines = [
        "| benchmark | unit | ours | peer | ratio | limit | share of limit | repeats | cores | date |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        figures = [number(row[key]) for key in ("ours", "peer", "ratio", "limit", "share_of_limit")]
        cells = [row["name"], row["unit"], *figures, str(row["repeats"]), str(row["cores"]), row["date"]]
        lines.append(f"| {' | '.join(cells)} |")
    for row in rows:
        spread = "; ".join(f"{name} {number(low)} to {number(high)}" for name, (low, high) in row["spread"].items())
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        lines += ["", f"**{row['name']}** ({row['machine']}). {row['notes']} Spread: {spread}. Versions: {versions}."]
    return lines


def earlier(text: str) -> dict[str, Result]:
    """Results that the page holds, by name, from the data beside the table."""
    block = text.partition(BEGIN)[2].partition(END)[0].partition(DATA_BEGIN)[2].partition(DATA_END)[0]
    rows = [json.loads(line) for line in block.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


def with_table(text: str, results: Mapping[str, Result]) -> str:
    """The page with the block between the markers replaced."""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE.name} lacks the markers {BEGIN!r} and {END!r}")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    rows = [results[name] for name in sorted(results)]
    data = [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows]
    return before + "\n".join([BEGIN, "", *table(rows), "", DATA_BEGIN, *data, DATA_END, END]) + after


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmarks and writes the page."""
    parser = argparse.ArgumentParser(description="Runs benchmarks and writes docs/performance.md.")
    parser.add_argument("names", nargs="*", help="benchmarks to run; all if none is named")
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.date.today(), help="YYYY-MM-DD")
    given = parser.parse_args(arguments)
    known = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("[!_]*.py"))}
    for name in given.names:
        if name not in known:
            parser.error(f"no benchmark {name!r}; there are {', '.join(known)}")
    text = PAGE.read_text(encoding="utf-8")
    results = {name: row for name, row in earlier(text).items() if name in known}
    machine = f"{cpu_model()}, {os.cpu_count()} cores"
    for name in given.names or known:
        result = run(known[name])
        print(json.dumps(result))
        results[result["name"]] = {**result, "machine": machine, "date": given.date.isoformat()}
    PAGE.write_text(with_table(text, results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
