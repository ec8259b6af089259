"""Bills of materials, checksums and the signature of a release's files."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.release.errors import ReleaseError

CHECKSUMS = "SHA256SUMS"
PRINCIPAL = "dressage-release"


def check_sbom(path: Path) -> None:
    """Compare a bill of materials with the schema of its version of CycloneDX.

    :raises ReleaseError: if it breaks the schema, or lists nothing.
    """
    text = path.read_text()
    bom = json.loads(text)
    if bom.get("bomFormat") != "CycloneDX" or not bom.get("components"):
        raise ReleaseError(f"{path.name}: no bill of materials; expected CycloneDX with components.")
    problem = JsonStrictValidator(SchemaVersion.from_version(bom["specVersion"])).validate_str(text)
    if problem is not None:
        raise ReleaseError(f"{path.name}: breaks the schema of CycloneDX {bom['specVersion']}: {str(problem)[:500]}")


def write_checksums(folder: Path) -> Path:
    """Write the SHA-256 of every file of a folder, as `sha256sum --check` reads it."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(CHECKSUMS))
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    target = folder / CHECKSUMS
    target.write_text("".join(lines))
    return target


def sign(checksums: Path, key: Path) -> Path:
    """Sign the checksums with an SSH key; the agent may hold its private part.

    :param key: the private key, or the public one of a key in the agent.
    """
    signature = checksums.with_name(checksums.name + ".sig")
    signature.unlink(missing_ok=True)
    _run(["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", "file", str(checksums)])
    return signature


def verify(folder: Path, signers: Path) -> None:
    """Verify signature and checksums with the commands of SECURITY.md.

    :raises ReleaseError: if a file was changed, or no key of `signers` made the signature.
    """
    options = ["-f", str(signers), "-I", PRINCIPAL, "-n", "file", "-s", str(folder / f"{CHECKSUMS}.sig")]
    _run(["ssh-keygen", "-Y", "verify", *options], standard_input=(folder / CHECKSUMS).read_bytes())
    _run(["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS], cwd=folder)


def tag_is_signed(repository: Path, tag: str, signers: Path) -> bool:
    """Return whether a key of the signers signed a tag."""
    options = ["-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers}"]
    command = ["git", *options, "verify-tag", tag]
    return subprocess.run(command, cwd=repository, capture_output=True, timeout=60).returncode == 0


def create_trial_key(folder: Path) -> tuple[Path, Path]:
    """Create a key for one dry run; return it and the file of signers that names it."""
    key, signers = folder / "key", folder / "signers"
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dry run", "-f", str(key)])
    signers.write_text(f'{PRINCIPAL} namespaces="file,git" {key.with_suffix(".pub").read_text()}')
    return key, signers


def _run(command: list[str], *, standard_input: bytes | None = None, cwd: Path | None = None) -> None:
    options: dict[str, object] = {"stdin": subprocess.DEVNULL} if standard_input is None else {"input": standard_input}
    done = subprocess.run(command, capture_output=True, cwd=cwd, timeout=300, **options)  # type: ignore[call-overload]
    if done.returncode:
        output = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise ReleaseError(f"{' '.join(command[:3])}: {output}")
