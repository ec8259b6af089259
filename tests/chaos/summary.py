"""Tables of a file of results, in Markdown: `python -m tests.chaos.summary FILE`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.runner import lines_of


def tables(lines: list[dict[str, Any]]) -> str:
    """Return counts by process kind, by other fault, and by method and installation."""
    kills, others = Counter[str](), Counter[str]()
    for line in lines:
        for fault in line["faults"]:
            if fault["kind"] == "kill":
                kills[_process(fault["target"])] += 1
            else:
                others[_name(fault)] += 1
    groups = sorted({(line["method"], line["installation"]) for line in lines})
    rows: list[tuple[Any, ...]] = []
    for method, kind in groups:
        chosen = [line for line in lines if (line["method"], line["installation"]) == (method, kind)]
        different = sum(bool(line["differences"]) for line in chosen)
        numbers = (
            len(chosen),
            sum(line["kills"] for line in chosen),
            sum(line["repeats"] for line in chosen),
            different,
        )
        rows.append((f"`{method}`", _INSTALLATIONS[kind], *numbers))
    total = [sum(row[column] for row in rows) for column in range(2, 6)]
    return "\n\n".join(
        (
            _table(("killed process", "kills"), [*kills.most_common(), ("all", kills.total())]),
            _table(("other fault", "times"), others.most_common()),
            _table(
                ("method", "database, store", "sessions", "kills", "repeated requests", "sessions with differences"),
                [*rows, ("all", "", *total)],
            ),
        )
    )


_INSTALLATIONS = {"sqlite": "SQLite, folder", "postgres": "PostgreSQL, S3"}


def _process(target: str) -> str:
    # A sandbox that was started ahead has no target yet, so its kind has no name.
    return "sandbox that waits for its work" if target.endswith("-") else target.replace("_", "-")


def _name(fault: dict[str, Any]) -> str:
    kind, target = fault["kind"], fault["target"].replace("_", "-")
    match kind:
        case "term":
            return f"SIGTERM of {target}"
        case "disk":
            return f"full disk: {target}"
        case "store":
            return {"busy": "store answers 503", "absent": "store absent", "slow": "store slow"}[target]
        case "database":
            return "database restarted"
        case "clock":
            return "clock jumps ahead" if fault["seconds"] > 0 else "clock jumps back"
        case _:
            return {"cut": "connections cut", "delay": "connections delayed", "duplicate": "connections duplicated"}[
                kind
            ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in lines)


if __name__ == "__main__":
    print(tables(lines_of(Path(sys.argv[1]))))
