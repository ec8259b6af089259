"""The backend and the algorithm on the command line."""

from __future__ import annotations

import pytest
from dressage.errors import InvalidArgument

from tests.fakes.options import spec_of


def test_they_go_into_the_spec():
    spec = spec_of(intent="hop", env="Hopper-v5", backend="sb3", algorithm="sac")
    assert (spec.reward.backend, spec.reward.algorithm) == ("sb3", "sac")
    spec = spec_of(intent="hop", env="Hopper-v5")
    assert (spec.reward.backend, spec.reward.algorithm) == ("", "")


@pytest.mark.parametrize(
    ("given", "option"), [({"backend": "torch"}, "--backend"), ({"algorithm": "td3"}, "--algorithm")]
)
def test_unknown_ones_are_refused_by_name(given, option):
    with pytest.raises(InvalidArgument, match=option):
        spec_of(intent="hop", env="Hopper-v5", **given)
