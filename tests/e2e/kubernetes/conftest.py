"""One installation of the chart for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.kubernetes.installation import Installation, install
from tests.servers.kubernetes import Namespace, namespace, require_cluster


@pytest.fixture(scope="session")
def installed() -> Iterator[Installation]:
    require_cluster()
    if given := os.environ.get("DRESSAGE_E2E_NAMESPACE"):
        created = Installation(Namespace(given))
        created.ready()
        yield created
        return
    with namespace("dressage-e2e", keep=bool(os.environ.get("DRESSAGE_E2E_KEEP"))) as space:
        yield install(space)


@pytest.fixture
def address(installed: Installation) -> Iterator[str]:
    with installed.api() as client:
        yield client
