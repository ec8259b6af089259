"""Settings of hypothesis for all tests: the same examples each time, without deadlines, because machines are shared."""

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
