"""`tools/audit.py` with stand-ins for pip-audit: findings fail, an absent database does not, a broken program does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CLEAN = {"name": "a", "version": "1", "vulns": []}
VULNERABLE = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("dependencies", "error", "code", "part"),
    [
        ([CLEAN, UNKNOWN], "", 0, "no known vulnerability in 1 packages; 1 are not"),
        ([CLEAN, VULNERABLE, UNKNOWN], "", 1, "b 2: PYSEC-1, fixed in 3"),
        ([UNKNOWN, UNKNOWN], "", 0, "skipped"),
        (None, "requests.exceptions.ConnectionError: no route", 0, "skipped"),
        (None, "usage: pip-audit", 2, "usage"),
    ],
)
def test_what_the_audit_makes_of_a_report(
    tmp_path: Path, dependencies: list[object] | None, error: str, code: int, part: str
) -> None:
    report = "" if dependencies is None else json.dumps({"dependencies": dependencies})
    done = run(tmp_path, f"#!/bin/sh\ncat <<'E'\n{report}\nE\necho '{error}' >&2\nexit 1\n")
    assert done.returncode == code and part in done.stdout + done.stderr


def test_an_audit_without_an_answer_is_bounded(tmp_path: Path) -> None:
    done = run(tmp_path, "#!/bin/sh\nexec sleep 60\n", "--seconds", "1")
    assert done.returncode == 0 and "no answer within 1 s" in done.stderr


def run(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "pip-audit"
    path.write_text(program)
    path.chmod(0o755)
    command = [sys.executable, str(ROOT / "tools/audit.py"), "--program", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
