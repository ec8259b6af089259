"""What holds for all tests.

Hypothesis takes the same examples each time, without deadlines, because machines are shared.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.durations import seconds_by_test, write_table
from tests.extended import is_extended

settings.register_profile(
    "dressage", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dressage")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that make single tests longer."""
    parser.addoption(
        "--fuzz-requests", type=int, default=12, help="requests to each RPC in tests/integration/fuzz (default: 12)"
    )
    parser.addoption("--durations-table", type=Path, help="file for the time of each test, such as build/durations.tsv")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole files of extended tests, which saves their imports, unless the command line names them."""
    file = collection_path.relative_to(config.rootpath).as_posix() if collection_path.suffix == ".py" else ""
    return True if file and "not extended" in config.option.markexpr and is_extended(file) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark extended tests, but for those whose file is named on the command line."""
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    for item in items:
        file = item.nodeid.partition("::")[0]
        if item.path not in named and (is_extended(item.nodeid) or is_extended(file)):
            item.add_marker("extended")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the tests that ran once more, each with the cause of its first failure (`--reruns`); write the times of all."""
    if path := config.option.durations_table:
        reports = [
            report for group in terminalreporter.stats.values() for report in group if hasattr(report, "duration")
        ]
        seconds = seconds_by_test((report.nodeid, report.duration) for report in reports)
        write_table(path, seconds, heading=f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores")
    for report in terminalreporter.stats.get("rerun", ()):
        crash = getattr(report.longrepr, "reprcrash", None)
        cause = crash.message.partition("\n")[0] if crash else str(report.longrepr).strip().rpartition("\n")[2]
        terminalreporter.write_line(f"ran once more: {report.nodeid}: {cause}")


@pytest.fixture(autouse=True)
def _folders_of_commands() -> Iterator[None]:
    """Undo what a command that a test calls sets for the whole process: the folders of environments and packs."""
    names = ("DRESSAGE_ENVIRONMENTS", "DRESSAGE_PACKS")
    before = {name: os.environ.get(name) for name in names}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
