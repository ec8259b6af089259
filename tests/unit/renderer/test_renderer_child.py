"""The environment variables of a rendering process."""

from __future__ import annotations

import pytest
from dressage_renderer.child import child_environment


def test_it_has_the_folder_of_environments_and_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", "/data/environments")
    monkeypatch.setenv("DRESSAGE_RENDERER_AUTH_TOKEN", "secret")
    given = child_environment()
    assert given["DRESSAGE_ENVIRONMENTS"] == "/data/environments"
    assert "secret" not in given.values()
