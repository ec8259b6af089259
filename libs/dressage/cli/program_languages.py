"""`dressage programs register`, `unregister` and `languages`."""

from __future__ import annotations

import os
import sys

from dressage.cli import output
from dressage.cli.options import ENVIRONMENTS


def register(source: str, *, as_json: bool) -> None:
    """Register a plug-in and print its tasks.

    :raises DressageError: for a plug-in that does not work.
    """
    from dressage.programs.languages import registering

    def report(what: str) -> None:
        print(f"{what} …", file=sys.stderr, flush=True)

    with output.writing(
        "folder of languages",
        os.environ.get(ENVIRONMENTS, ""),
        expected="a folder that can be written to; set --data-dir or DRESSAGE_ENVIRONMENTS",
    ):
        description = registering.register(source, report)
    tasks = [f"{description.name}/{task}" for task in description.tasks]
    if as_json:
        output.print_json({"name": description.name, "tasks": tasks, "note": description.note})
        return
    print(f"language {description.name}: {', '.join(tasks)}")
    if description.note:
        print(f"note: {description.note}")


def unregister(name: str) -> None:
    """Remove a language and print its name.

    :raises NotFound: if there is none of this name.
    """
    from dressage.programs.languages import registering

    registering.unregister(name)
    print(f"removed: {name}")


def show(*, as_json: bool) -> None:
    """Print the registered languages."""
    from dressage.programs.languages import registering

    rows = registering.languages()
    if as_json:
        output.print_json({"languages": rows})
        return
    for row in rows:
        if "problem" in row:
            print(f"{row['name']}: {row['problem']}")
        else:
            note = f" ({row['note']})" if row["note"] else ""
            print(f"{row['name']}: {', '.join(row['tasks'])}{note}")
    if not rows:
        print("none; `dressage programs register` adds one")
