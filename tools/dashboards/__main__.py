"""Write the dashboards into the chart. usage: python -m tools.dashboards [--check]"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards.pages import PAGES

FOLDER = Path(__file__).parents[2] / "charts" / "dressage" / "dashboards"


def render() -> dict[str, str]:
    """Return the JSON of each dashboard by file name."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    texts = {}
    for name, make in PAGES.items():
        built = make().build()
        for number, panel in enumerate(built.panels or [], start=1):
            panel.id_val = number  # the builders leave them out; links to a panel go by them
        texts[f"{name}.json"] = encoder.encode(built) + "\n"
    return texts


def main() -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the files are current; write nothing")
    check = parser.parse_args().check
    stale = [name for name, text in render().items() if not _current(FOLDER / name, text)]
    if check and stale:
        print(f"not current: {', '.join(stale)}; run python -m tools.dashboards", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(render()[name], encoding="utf-8")
    return 0


def _current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
