"""Makes the helper modules of these tests importable by name."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "fakes")]


@pytest.fixture(scope="session", autouse=True)
def litellm_is_imported() -> None:
    """Imported once, outside of the tests' deadlines: that takes seconds."""
    from dressage_llm_agent.provider.litellm_provider import load_litellm

    load_litellm()
