"""The chart of a release: the values of the repository with the registry and the digests of the images, as a package.

The digests are written into a copy. The repository's chart stays without them, so that it installs images that people build
themselves.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.release.errors import ReleaseError

# The value of each image, by its name after `dressage-`.
VALUES = {
    "orchestrator": "orchestrator",
    "llm-agent": "llmAgent",
    "judge": "judge",
    "renderer": "renderer",
    "trainer": "trainer",
    "console": "console",
}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HELM = str(Path(sys.executable).with_name("helm"))


def with_digests(values: str, registry: str, digests: Mapping[str, str]) -> str:
    """Return the text of values.yaml with a registry and the digest of each image; comments stay.

    :param digests: `sha256:…` by the image's name after `dressage-`.
    :raises ReleaseError: if an image has no digest, or the text has no field for one.
    """
    text = _replace(values, "image", "registry", registry)
    for name, value in VALUES.items():
        digest = digests.get(name, "")
        if not _DIGEST.fullmatch(digest):
            raise ReleaseError(
                f"dressage-{name}: no digest (got {digest!r}); expected sha256:…, as the registry states it."
            )
        text = _replace(text, value, "digest", digest)
    return text


def _replace(text: str, section: str, field: str, value: str) -> str:
    """Set an empty field of a top-level section."""
    pattern = re.compile(rf'(^{section}:\n(?:(?:  .*)?\n)*?  {field}: )""$', re.M)
    changed, count = pattern.subn(lambda match: f'{match.group(1)}"{value}"', text)
    if count != 1:
        raise ReleaseError(f'values.yaml: no empty field {section}.{field}; expected `{field}: ""`.')
    return changed


def package(chart: Path, target: Path, *, registry: str, digests: Mapping[str, str]) -> Path:
    """Write the package of the chart into a folder, after `helm lint` and `helm template`; return the file.

    :raises ReleaseError: if helm refuses the chart, or it refers to an image without a digest.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / chart.name
        shutil.copytree(chart, copy)
        values = copy / "values.yaml"
        values.write_text(with_digests(values.read_text(), registry, digests))
        _helm("lint", "--strict", str(copy))
        problems = without_digest(_helm("template", "release", str(copy)))
        if problems:
            raise ReleaseError(f"charts/dressage: images without a digest: {', '.join(problems)}.")
        _helm("package", str(copy), "--destination", str(target))
    (file,) = target.glob(f"{chart.name}-*.tgz")
    return file


def without_digest(manifests: str) -> list[str]:
    """Return the images that manifests name without a digest."""
    images = re.findall(r'\bimage"?: *"?([^\s",}]+)', manifests)
    if not images:
        raise ReleaseError("charts/dressage: the manifests name no image.")
    return sorted({image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)})


def _helm(*arguments: str) -> str:
    done = subprocess.run([_HELM, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ReleaseError(f"helm {arguments[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
