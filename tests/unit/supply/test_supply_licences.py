"""The licences of everything that the product's extras install: permissive, or reviewed by name."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PRODUCT = ("local",)
REFERENCE = ("sb3",)
"""torch, on a computer with a GPU, requires NVIDIA's libraries."""

ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
        *("CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib"),
    }
)
REVIEWED = {
    "certifi": "MPL-2.0",  # a list of certificates, not changed
    "tqdm": "MPL-2.0 AND MIT",  # not changed
    "psycopg": "LGPL-3.0-only",  # imported as a library, and replaceable
    "psycopg-binary": "LGPL-3.0-only",
}
"""Distributions with another licence, and which."""

_GPL_LIBRARIES = (
    "libx264",
    "libx265",
    "libxvidcore",
    "libreadline",
    "libpostproc",
    "librubberband",
    "libvidstab",
    "libgsl",
)
BUNDLED = frozenset({("av", "libx264"), ("av", "libx265")})
"""Libraries under the GPL in wheels, and the distributions with them: the renderer encodes H.264 by PyAV, whose wheels contain
x264 and x265. `docs/security.md` states what that means for who distributes images."""

_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX identifiers of what older metadata states."""


def installed(*extras: str) -> dict[str, metadata.Distribution]:
    """Installed distributions that the extras of the product require, directly or not, by name."""
    seen: dict[str, set[str]] = {}
    todo = [("dressage", frozenset(extras))]
    while todo:
        name, needed = todo.pop()
        if name in seen and needed <= seen[name]:
            continue
        seen.setdefault(name, set()).update(needed)
        try:
            requires = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:  # of another platform or extra
            continue
        for requirement in map(Requirement, requires):
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in {*needed, ""}
            ):
                todo.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    names = {canonicalize_name(entry.metadata["Name"]) for entry in metadata.distributions()}
    return {name: metadata.distribution(name) for name in sorted(seen) if name in names}


def licence(distribution: metadata.Distribution) -> str:
    """The licence that a distribution states, as an SPDX expression where it is known; empty if it states none."""
    facts = distribution.metadata
    if facts.get("License-Expression"):
        return str(facts["License-Expression"])
    text = (facts.get("License") or "").strip().splitlines()
    stated = _NAMES.get(text[0].strip(), text[0].strip()) if text else ""
    if stated in ALLOWED or all(part in ALLOWED | {"MPL-2.0"} for part in re.split(r" (?:AND|OR) ", stated)):
        return stated
    classifiers = [
        entry.rpartition(" :: ")[2] for entry in facts.get_all("Classifier") or [] if entry.startswith("License ::")
    ]
    known = [_NAMES.get(entry, entry) for entry in classifiers if entry != "OSI Approved"]
    return " OR ".join(known) or stated


def allowed(expression: str) -> bool:
    """Whether an expression needs no licence but allowed ones; of alternatives one suffices."""
    parts = re.split(r" OR ", expression.replace("(", "").replace(")", ""))
    return any(all(entry in ALLOWED for entry in part.split(" AND ")) for part in parts)


def unreviewed(distributions: dict[str, metadata.Distribution]) -> dict[str, str]:
    """Licences that are neither allowed nor reviewed, by distribution."""
    stated = {name: licence(distribution) for name, distribution in distributions.items()}
    return {name: text for name, text in stated.items() if not allowed(text) and REVIEWED.get(name) != text}


def test_the_product_needs_only_allowed_licences() -> None:
    distributions = installed(*PRODUCT)
    assert len(distributions) > 80 and "jax" in distributions
    assert unreviewed(distributions) == {}


def test_the_page_of_the_console_ships_only_allowed_licences() -> None:
    lock = json.loads((ROOT / "services/console/web/package-lock.json").read_text("utf-8"))
    shipped = {name: entry for name, entry in lock["packages"].items() if name and not entry.get("dev")}
    assert {"node_modules/three", "node_modules/@mujoco/mujoco"} <= set(shipped)
    assert {
        name: entry.get("license") for name, entry in shipped.items() if not allowed(entry.get("license", ""))
    } == {}


def test_the_reference_needs_only_allowed_licences() -> None:
    """torch's NVIDIA libraries are proprietary: they may be used, and this project distributes none of them."""
    if "stable-baselines3" not in installed(*REFERENCE):
        pytest.skip("the group `reference` is not installed")
    others = {name for name in unreviewed(installed(*REFERENCE)) if not name.startswith(("nvidia-", "cuda-"))}
    assert others == set()


def test_the_simulator_of_devices_needs_only_allowed_licences() -> None:
    """The code is under Apache-2.0. The wheel of warp-lang contains parts of NVIDIA's, so `local` and no image include it."""
    if "warp-lang" not in installed("warp"):
        pytest.skip("the extra `warp` is not installed")
    assert unreviewed(installed("warp")) == {}
    assert "warp-lang" not in installed(*PRODUCT)


def test_bundled_libraries_under_the_gpl_are_known() -> None:
    """Metadata states the licence of the code of a distribution, not always that of the libraries in its wheels."""
    entries = [
        (name, path.name.partition("-")[0])
        for name, distribution in installed(*PRODUCT).items()
        for path in distribution.files or []
        if path.parts[0].endswith(".libs") and path.name.startswith(_GPL_LIBRARIES)
    ]
    assert set(entries) <= BUNDLED


def test_no_reviewed_distribution_is_left_over() -> None:
    assert set(REVIEWED) <= set(installed(*PRODUCT, *REFERENCE)) | {"psycopg-binary", "tqdm"}


@pytest.mark.parametrize("expression", ["GPL-3.0-only", "MIT AND GPL-2.0-or-later", "AGPL-3.0-only", "", "Proprietary"])
def test_other_licences_are_refused(expression: str) -> None:
    assert not allowed(expression) and allowed("MIT") and allowed("GPL-2.0-only OR MIT")


def test_the_image_with_pyav_states_the_licences_of_its_libraries() -> None:
    root = Path(__file__).parents[3]
    renderer = (
        (root / "services/Dockerfile").read_text().partition("FROM shared AS renderer\n")[2].partition("\nFROM ")[0]
    )
    assert "COPY services/renderer/NOTICE /opt/dressage/NOTICE" in renderer
    assert 'licenses="Apache-2.0 AND BSD-3-Clause AND GPL-2.0-or-later"' in renderer
    libraries = Path(str(metadata.distribution("av").locate_file("av.libs")))
    bundled = {path.name.partition("-")[0] for path in libraries.iterdir()}
    notice = (root / "services/renderer/NOTICE").read_text()
    assert all(name in notice for name in ("x264", "x265")) and {"libx264", "libx265"} <= bundled, (
        "the notice is still true"
    )
