"""The version of a release, which several files state."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]


def stated_versions(root: Path) -> dict[str, str]:
    """Return the version that each file states, by the file and its field."""
    chart = yaml.safe_load((root / "charts/dressage/Chart.yaml").read_text())
    page = json.loads((root / "services/console/web/package.json").read_text())
    lock = tomllib.loads((root / "uv.lock").read_text())
    wheel = re.search(r"dist/dressage-(\S+?)-py3-none-any\.whl", (root / "README.md").read_text())
    return {
        "pyproject.toml: project.version": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        "uv.lock: dressage": next(entry["version"] for entry in lock["package"] if entry["name"] == "dressage"),
        "charts/dressage/Chart.yaml: version": chart["version"],
        "charts/dressage/Chart.yaml: appVersion": chart["appVersion"],
        "services/console/web/package.json: version": page["version"],
        "README.md: name of the wheel": wheel.group(1) if wheel else "",
    }


def version_problems(root: Path) -> list[str]:
    """Return where a file states another version than pyproject.toml."""
    versions = stated_versions(root)
    expected = versions["pyproject.toml: project.version"]
    return [
        f"{place}: another version (got {version!r}); expected {expected!r}."
        for place, version in versions.items()
        if version != expected
    ]


def changelog_problems(root: Path, version: str) -> list[str]:
    """Return what CHANGELOG.md lacks for a release of the version."""
    text = (root / "CHANGELOG.md").read_text()
    if re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.M):
        return []
    return [
        f"CHANGELOG.md: no section of the release; expected `## [{version}] - YYYY-MM-DD` in place of `[Unreleased]`."
    ]
