"""Compare the locked packages of the product with known vulnerabilities, by pip-audit, within a time limit.

Exit status 0: none is known, or the database cannot be reached, which a warning states; 1: some are known, and are listed;
2: pip-audit failed. pip-audit is installed into `.tools/audit` from `audit-requirements.txt`, every file by hash.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UV = str(ROOT / "tools/uv")
TOOLS = ROOT / ".tools/audit"
_NO_CONNECTION = re.compile(r"ConnectionError|ConnectTimeout|ReadTimeout|ServiceError|SSLError|ProxyError|Max retries")


def install() -> Path:
    """Install pip-audit, unless it is installed; return its path."""
    program = TOOLS / "bin/pip-audit"
    if not program.exists():
        requirements = str(ROOT / "tools/audit-requirements.txt")
        subprocess.run([UV, "venv", "--quiet", "--allow-existing", str(TOOLS)], check=True)
        options = ["--python", str(TOOLS), "--no-deps", "--require-hashes", "--requirement", requirements]
        subprocess.run([UV, "pip", "install", "--quiet", *options], check=True)
    return program


def export_requirements(extra: str, target: Path) -> None:
    """Write the locked packages of an extra."""
    options = ["--quiet", "--frozen", "--no-dev", "--no-emit-project", "--extra", extra, "--output-file", str(target)]
    subprocess.run([UV, "export", *options], check=True, stdout=subprocess.DEVNULL)


def audit(program: Path, requirements: Path, *, seconds: float) -> int:
    """Run pip-audit and print what it reports; return the exit status of this tool."""
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", "15", "--format", "json"]
    try:
        done = subprocess.run(
            [str(program), "--requirement", str(requirements), *options],
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return warn_skipped(f"no answer within {seconds:g} s")
    try:
        dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        if _NO_CONNECTION.search(done.stderr):
            return warn_skipped(done.stderr.strip().splitlines()[-1])
        print(done.stderr, file=sys.stderr)
        return 2
    vulnerable = [entry for entry in dependencies if entry.get("vulns")]
    for entry in vulnerable:
        for each in entry["vulns"]:
            fixed = ", ".join(each["fix_versions"]) or "no version"
            print(f"{entry['name']} {entry['version']}: {each['id']}, fixed in {fixed}")
    unknown = sum("skip_reason" in entry for entry in dependencies)
    if vulnerable:
        return 1
    if dependencies and unknown == len(dependencies):  # an index without the database answers so
        return warn_skipped("it has none of the packages")
    print(f"audit: no known vulnerability in {len(dependencies) - unknown} packages; {unknown} are not in the database")
    return 0


def warn_skipped(reason: str) -> int:
    """Warn that nothing was compared."""
    print(f"audit: skipped, the database of vulnerabilities cannot be reached: {reason}", file=sys.stderr)
    return 0


def main() -> int:
    """Audit the extra that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", default="local", help="extra of pyproject.toml (default: local)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit of pip-audit (default: 120)")
    parser.add_argument("--program", type=Path, help="pip-audit to use, instead of installing it")
    args = parser.parse_args()
    program = args.program or install()
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        export_requirements(args.extra, requirements)
        return audit(program, requirements, seconds=args.seconds)


if __name__ == "__main__":
    sys.exit(main())
