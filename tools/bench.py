"""Run `benchmarks/*.py` one after the other and write their table into `docs/performance.md`.

Run it with ``make bench`` on an idle machine. Each benchmark prints one JSON object with the keys of `KEYS`, and its
docstring describes the measurement. The whole object, with spread, versions and notes, is stored in
``benchmarks/results/NAME.json``; the table shows the figures of all stored results. A benchmark with several rows in the
table lists them in ``rows``, with the keys of `ROW_KEYS`. ``bench.py NAME …`` runs only those benchmarks; ``bench.py
--table`` runs none and writes the table from the stored results.
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
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- benchmarks: begin (written by `make bench`) -->", "<!-- benchmarks: end -->"
TIMEOUT_SECONDS = 4 * 3600
KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "what": str,
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
ROW_KEYS = ("what", "unit", "ours", "peer", "ratio", "share_of_limit")
HEADER = ("| benchmark | unit | ours | peer | ratio | share of limit |", "| --- | --- | ---: | ---: | ---: | ---: |")
ORDER = {name: place for place, name in enumerate(("training_throughput", "time_to_return", "demo_throughput"))}
"""The first rows of the table; others follow by name."""
BY_NAME = frozenset({"time_to_pass", "gpu_training"})
"""Benchmarks that take hours or a GPU: they run only if they are named."""
Result = Mapping[str, Any]


def cpu_model() -> str:
    """Return the processor's name, or the architecture where the system has no name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def run(path: Path) -> Result:
    """Run one benchmark and return its object.

    :raises SystemExit: if it fails, or prints something else.
    """
    print(f"{path.stem} …", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"{path.name} ended with status {done.returncode}")
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise SystemExit(f"{path.name} printed no JSON object: {done.stdout[-200:]!r}") from None
    return check(result, path)


def check(result: Any, path: Path) -> Result:
    """Return the object if it has every key with the right type, and the file's name.

    :raises SystemExit: otherwise.
    """
    if not isinstance(result, dict):
        raise SystemExit(f"{path.name}: expected a JSON object, got {type(result).__name__}")
    for key, kind in KEYS.items():
        if key not in result or not isinstance(result[key], kind):
            raise SystemExit(f"{path.name}: {key} is {result.get(key)!r}, expected {kind}")
    if result["name"] != path.stem:
        raise SystemExit(f"{path.name}: name is {result['name']!r}, expected {path.stem!r}")
    for row in rows(result):
        if missing := [key for key in ROW_KEYS if key not in row]:
            raise SystemExit(f"{path.name}: a row lacks {missing[0]}, expected {', '.join(ROW_KEYS)}")
    return result


def rows(result: Result) -> Sequence[Result]:
    """Return the rows of a result in the table: those that it lists, or the result itself."""
    listed: Sequence[Result] = result.get("rows") or [result]
    return listed


def number(value: float | None) -> str:
    """Format a figure for the table."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(results: Iterable[Result]) -> list[str]:
    """Return the lines of the table, and a line with machines and dates below it."""
    listed = list(results)
    lines = list(HEADER)
    for row in (row for result in listed for row in rows(result)):
        share = "–" if row["share_of_limit"] is None else f"{row['share_of_limit']:.0%}"
        figures = [number(row[key]) for key in ("ours", "peer", "ratio")]
        lines.append(f"| {' | '.join([row['what'], row['unit'], *figures, share])} |")
    machines = " and ".join(sorted({result["machine"] for result in listed}))
    dates = sorted({result["date"] for result in listed})
    if dates:
        lines += ["", f"Machine: {machines}. Dates: {dates[0]} to {dates[-1]}."]
    return lines


def load_results(folder: Path) -> dict[str, Result]:
    """Return the results that the folder holds, by name."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {result["name"]: result for result in results}


def store(folder: Path, result: Result) -> None:
    """Write a result into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / f"{result['name']}.json").write_text(text + "\n", encoding="utf-8")


def with_table(text: str, results: Mapping[str, Result]) -> str:
    """Return the page with the block between the markers replaced.

    :raises SystemExit: if the page lacks the markers.
    """
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE.name} lacks the markers {BEGIN!r} and {END!r}")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    ordered = sorted(results.values(), key=lambda result: (ORDER.get(result["name"], len(ORDER)), result["name"]))
    return before + "\n".join([BEGIN, "", *table(ordered), "", END]) + after


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks, store their results, and write the page."""
    parser = argparse.ArgumentParser(description="Run benchmarks and write docs/performance.md.")
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all but time_to_pass and gpu_training)")
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.date.today(), help="YYYY-MM-DD")
    parser.add_argument("--table", action="store_true", help="run nothing, write the table from the stored results")
    args = parser.parse_args(arguments)
    paths = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("[!_]*.py"))}
    for name in args.names:
        if name not in paths:
            parser.error(f"no benchmark {name!r}; expected one of {', '.join(paths)}")
    machine = f"{cpu_model()}, {os.cpu_count()} cores"
    for name in [] if args.table else args.names or [name for name in paths if name not in BY_NAME]:
        result = run(paths[name])
        print(json.dumps(result))
        store(RESULTS, {**result, "machine": machine, "date": args.date.isoformat()})
    results = {name: result for name, result in load_results(RESULTS).items() if name in paths}
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
