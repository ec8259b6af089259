"""`dressage check`: the check of a reward or a code policy that a session makes, in the sandbox, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dressage.cli import output
from dressage.contracts import CheckFailure
from dressage.sdk.files import read_source


def check(path: Path, environment: str, *, allow_unsandboxed: bool, traceable: bool, as_json: bool) -> int:
    """Check a file and return the exit code: 1 if the check fails.

    :raises InvalidArgument: if the file cannot be read.
    :raises NotFound: for an unknown environment.
    :raises FailedPrecondition: if this kernel has no sandbox and running without is not allowed.
    """
    from dressage.sdk.checking import check_source, passed_text

    source, environment = read_source(path, field="REWARD.py"), environment.removeprefix("environments/")
    report = check_source(source, environment, allow_unsandboxed=allow_unsandboxed, traceable=traceable)
    if as_json:
        output.print_json({"file": str(path), "environment": environment, **report.to_dict()})
    elif report.ok:
        print(f"{path}: {passed_text(report)}")
        if report.terms:
            output.print_table(("term", "meaning"), report.terms.items())
        if report.traceable:
            print(f"{path}: can be compiled for a device")
        _print_findings(path, report.obstacles)
    else:
        _print_findings(path, report.failures)
        count = len(report.failures)
        print(f"{path}: failed, {count} finding{'s' if count != 1 else ''}")
    return 0 if report.ok else 1


def _print_findings(path: Path, findings: Sequence[CheckFailure]) -> None:
    for finding in findings:
        place = f"{path}:{finding.line}" if finding.line else str(path)
        seen = f" (seen: {finding.seen})" if finding.seen else ""
        print(f"{place}: {finding.rule}: {finding.message}{seen}")
