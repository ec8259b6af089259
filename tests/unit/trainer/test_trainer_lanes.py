"""How members are shared out among cores."""

import math

from dressage_trainer.ppo.lanes import lane_size
from hypothesis import given
from hypothesis import strategies as st

MEMBERS = st.integers(1, 64)
MINIBATCH = st.integers(1, 4096)
WEIGHTS = 10_800  # of 64 x 64 networks on HalfCheetah


@given(members=MEMBERS, minibatch=MINIBATCH, threads=st.integers(0, 64))
def test_lanes_are_of_equal_size(members, minibatch, threads):
    assert members % lane_size(members, minibatch_size=minibatch, threads=threads, weights=WEIGHTS) == 0


@given(members=MEMBERS, minibatch=MINIBATCH)
def test_one_core_stacks_all_members(members, minibatch):
    assert lane_size(members, minibatch_size=minibatch, threads=1, weights=WEIGHTS) == members


@given(members=MEMBERS, minibatch=st.integers(512, 4096), threads=st.integers(2, 16))
def test_large_minibatches_leave_no_core_idle_for_long(members, minibatch, threads):
    size = lane_size(members, minibatch_size=minibatch, threads=threads, weights=WEIGHTS)
    rounds = math.ceil(members // size / threads)
    fewest = math.ceil(members / threads)
    assert rounds * size <= fewest * 1.1


def test_small_minibatches_share_their_fixed_cost():
    assert lane_size(9, minibatch_size=64, threads=2, weights=WEIGHTS) == 3
    assert lane_size(9, minibatch_size=512, threads=2, weights=WEIGHTS) == 1
    assert lane_size(3, minibatch_size=512, threads=2, weights=WEIGHTS) == 1


def test_large_networks_keep_their_caches_for_one_member():
    """A gradient step of [256, 256] networks takes so long that its fixed cost is not worth an idle core."""
    assert lane_size(9, minibatch_size=64, threads=2, weights=140_000) == 1
