"""Make a release of the version in pyproject.toml, from its tag, into a folder.

usage: python -m tools.release --registry REGISTRY --key FILE    pushes images and chart, and signs with an SSH key
       python -m tools.release --dry-run                         pushes nothing; prints what it left out, with the command

The folder then has the wheel with the console's page, the chart with the digests of the images, the list of the images, bills
of materials, SHA256SUMS and its signature. SECURITY.md states how a user verifies them, CONTRIBUTING.md the steps of a release.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tools.release import chart, files, versions
from tools.release.errors import ReleaseError

ROOT = Path(__file__).parents[2]
SIGNERS = ROOT / "docs/release-signers"
CHART = ROOT / "charts/dressage"
_NO_REGISTRY = "registry.example.org/dressage"
_NO_DIGEST = "sha256:" + "0" * 64
_UNREACHABLE = 75  # exit status of tools/console without npm's registry


@dataclass(frozen=True)
class Release:
    """What is released, and where the files go.

    :param registry: registry and folder of the images; empty in a dry run without one.
    :param key: SSH key that signs; None in a dry run.
    :param digests: file with the digests of images that were pushed before; None: the images are pushed.
    """

    version: str
    folder: Path
    registry: str
    key: Path | None
    digests: Path | None
    dry_run: bool
    skipped: list[str] = field(default_factory=list)

    def done(self, step: str, text: str) -> None:
        """Print what a step made."""
        print(f"done     {step:<10} {text}", flush=True)

    def skip(self, step: str, reason: str, command: str) -> None:
        """Print a step that a dry run leaves out, with its command."""
        self.skipped.append(step)
        print(f"skipped  {step:<10} {reason}: {command}", flush=True)

    def check_source(self) -> None:
        """Check versions, changelog, tag and clean tree; a dry run prints what is missing for a release."""
        problems = versions.version_problems(ROOT)
        if problems:
            raise ReleaseError("\n".join(problems))
        self.done("versions", f"{self.version} in {len(versions.stated_versions(ROOT))} places")
        missing = versions.changelog_problems(ROOT, self.version)
        if _output("git", "status", "--porcelain"):
            missing.append("the working tree has changes; commit them.")
        tag = f"v{self.version}"
        if _output("git", "rev-parse", f"{tag}^{{commit}}") != _output("git", "rev-parse", "HEAD"):
            missing.append(f"{tag}: no such tag at this commit; create it with `git tag --sign {tag} --message {tag}`.")
        elif not files.tag_is_signed(ROOT, tag, SIGNERS):
            missing.append(f"{tag}: no signature by a key of {SIGNERS.relative_to(ROOT)}.")
        if missing and not self.dry_run:
            raise ReleaseError("\n".join(missing))
        for problem in missing:
            print(f"missing  source     {problem}", flush=True)

    def build_wheel(self) -> None:
        """Build the console's page and the wheel that contains it."""
        page = subprocess.run([str(ROOT / "tools/console"), "build"], cwd=ROOT, stdout=subprocess.DEVNULL, timeout=1800)
        if page.returncode == _UNREACHABLE and self.dry_run:
            self.skip("wheel", "npm's registry cannot be reached", "make wheel")
            return
        if page.returncode:
            raise ReleaseError(f"tools/console build: exit status {page.returncode}.")
        epoch = _output("git", "log", "-1", "--format=%ct")
        command = [str(ROOT / "tools/uv"), "build", "--quiet", "--wheel", "--out-dir", str(self.folder)]
        environment = os.environ | {"DRESSAGE_RELEASE": "1", "SOURCE_DATE_EPOCH": epoch}
        _run(command, environment=environment)
        (self.folder / ".gitignore").unlink(missing_ok=True)  # uv's
        self.done("wheel", next(self.folder.glob("*.whl")).name)

    def push_images(self) -> dict[str, str]:
        """Build and push the images; return their digests by name after `dressage-`."""
        target = self.digests or self.folder.parent / f"{self.folder.name}-digests"
        command = ["tools/images", "--push", "--digests", str(target)]
        variables = {"REGISTRY": self.registry or _NO_REGISTRY, "TAG": self.version}
        if self.digests is None and self.dry_run:
            words = shlex.join([*(f"{name}={value}" for name, value in variables.items()), *command])
            self.skip("images", "nothing is pushed; the chart gets digests of zeros", words)
            return dict.fromkeys(chart.VALUES, _NO_DIGEST)
        if self.digests is None:
            _run([str(ROOT / command[0]), *command[1:]], environment=os.environ | variables)
        digests = read_digests(target, variables["REGISTRY"])
        lines = [f"{variables['REGISTRY']}/dressage-{name}@{digest}\n" for name, digest in sorted(digests.items())]
        (self.folder / f"dressage-{self.version}-images.txt").write_text("".join(lines))
        self.done("images", f"{len(digests)} by digest")
        return digests

    def make_chart(self, digests: dict[str, str]) -> None:
        """Package the chart with the digests, and push it."""
        registry = self.registry or _NO_REGISTRY
        package = chart.package(CHART, self.folder, registry=registry, digests=digests)
        self.done("chart", f"{package.name}: helm lint and helm template pass, every image by digest")
        command = ["helm", "push", str(package), f"oci://{registry}/charts"]
        if self.dry_run:
            self.skip("chart", "nothing is pushed", shlex.join(command))
        else:
            _run([str(Path(sys.executable).with_name("helm")), *command[1:]])
            self.done("chart", f"pushed to oci://{registry}/charts/{CHART.name}")

    def write_sboms(self) -> None:
        """Write a bill of materials for the wheel with `local`, for each image, and for the console's page."""
        for name in ("local", *chart.VALUES, "page"):
            target = self.folder / f"dressage-{name}.cdx.json"
            _run([str(ROOT / "tools/sbom"), name, str(target)])
            files.check_sbom(target)
        self.done("sbom", f"{len(chart.VALUES) + 2} bills of materials, valid against the schema of CycloneDX")

    def sign(self) -> None:
        """Write checksums, sign them, and verify both as a user does."""
        checksums = files.write_checksums(self.folder)
        with tempfile.TemporaryDirectory() as folder:
            key, signers = (self.key, SIGNERS) if self.key else files.create_trial_key(Path(folder))
            files.sign(checksums, key)
            files.verify(self.folder, signers)
        by = str(self.key) if self.key else "a key of this dry run, which no longer exists"
        self.done("signature", f"{checksums.name}.sig by {by}; signature and checksums verified")


def read_digests(path: Path, registry: str) -> dict[str, str]:
    """Return the digests that `tools/images --digests` wrote, by name after `dressage-`.

    :raises ReleaseError: if a line names an image of another registry.
    """
    digests = {}
    for line in path.read_text().splitlines():
        image, _, digest = line.partition("@")
        name = image.removeprefix(f"{registry.rstrip('/')}/dressage-")
        if name == image:
            raise ReleaseError(f"{path}: an image of another registry (got {image}); expected {registry}/dressage-….")
        digests[name] = digest
    return digests


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(command: list[str], *, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, timeout=7200)
    if done.returncode:
        raise ReleaseError(f"{shlex.join(command)}: exit status {done.returncode}.")


def main() -> int:
    """Make the release that the command line describes; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="push and sign nothing; a key of this run stands in")
    parser.add_argument("--registry", default="", help="registry and folder of images and chart")
    parser.add_argument("--key", type=Path, help="SSH key that signs, one of docs/release-signers")
    parser.add_argument(
        "--digests", type=Path, help="digests of images that were pushed before (tools/images --digests)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/release", help="folder of the files; it is emptied")
    args = parser.parse_args()
    if not args.dry_run and not (args.registry and args.key):
        parser.error("--registry and --key are required; or use --dry-run")
    if args.dry_run and args.key:
        parser.error("--key: not with --dry-run, which signs with a key of its own")
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    version = versions.stated_versions(ROOT)["pyproject.toml: project.version"]
    release = Release(version, args.out.resolve(), args.registry.rstrip("/"), args.key, args.digests, args.dry_run)
    try:
        release.check_source()
        release.build_wheel()
        release.make_chart(release.push_images())
        release.write_sboms()
        release.sign()
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(list(args.out.iterdir()))} files in {args.out}; left out: {', '.join(release.skipped) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
