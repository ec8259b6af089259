"""The environment variables of a rendering process."""

from __future__ import annotations

import pytest
from dressage_renderer.probe import child_environment


def test_it_has_the_folders_of_environments_and_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", "/data/environments")
    monkeypatch.setenv("DRESSAGE_PACKS", "/data/packs")
    monkeypatch.setenv("DRESSAGE_RENDERER_AUTH_TOKEN", "secret")
    given = child_environment()
    assert given["DRESSAGE_ENVIRONMENTS"] == "/data/environments"
    assert given["DRESSAGE_PACKS"] == "/data/packs"
    assert "secret" not in given.values()
