"""Makes the fakes importable by name."""

import sys
from pathlib import Path

import pytest

for folder in (Path(__file__).parents[2] / "fakes", Path(__file__).parent):
    sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def litellm_is_imported() -> None:
    """Imported once, outside of the tests' deadlines: that takes seconds."""
    from dressage_llm_agent.provider.litellm_provider import load_litellm

    load_litellm()
