"""What holds for all tests.

Hypothesis takes the same examples each time, without deadlines, because machines are shared.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "dressage", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dressage")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that make single tests longer."""
    parser.addoption(
        "--fuzz-requests", type=int, default=12, help="requests to each RPC in tests/integration/fuzz (default: 12)"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that ran once more, each with the cause of its first failure (`--reruns`)."""
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
