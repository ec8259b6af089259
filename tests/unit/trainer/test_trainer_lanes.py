"""Distribution of members over cores."""

import heapq

from dressage_trainer.speed.lanes import lane_size, pieces
from hypothesis import given
from hypothesis import strategies as st

MEMBERS = st.integers(1, 64)
MINIBATCH = st.integers(1, 4096)
THREADS = st.integers(1, 16)
EPOCHS = st.integers(1, 20)
WEIGHTS = 10_800  # of 64 x 64 networks on HalfCheetah


@given(members=MEMBERS, minibatch=MINIBATCH, threads=st.integers(0, 64), epochs=EPOCHS)
def test_lanes_are_of_equal_size(members, minibatch, threads, epochs):
    size = lane_size(members, minibatch_size=minibatch, threads=threads, weights=WEIGHTS, epochs=epochs)
    assert members % size == 0


@given(members=st.integers(1, 17), minibatch=st.integers(1, 17), epochs=EPOCHS)
def test_one_core_stacks_all_members_of_small_minibatches(members, minibatch, epochs):
    assert lane_size(members, minibatch_size=minibatch, threads=1, weights=WEIGHTS, epochs=epochs) == members


@given(members=MEMBERS, minibatch=st.integers(512, 4096), threads=st.integers(2, 16), epochs=st.integers(4, 20))
def test_large_minibatches_leave_no_core_idle_for_long(members, minibatch, threads, epochs):
    size = lane_size(members, minibatch_size=minibatch, threads=threads, weights=WEIGHTS, epochs=epochs)
    took = size * makespan(members // size, threads=threads, epochs=epochs)
    assert took <= 1.1 * max(members * epochs / threads, epochs) + size


def test_small_minibatches_share_their_fixed_cost():
    def size(members, minibatch):
        return lane_size(members, minibatch_size=minibatch, threads=2, weights=WEIGHTS, epochs=8)

    assert size(9, 64) == 3
    assert size(9, 512) == 1
    assert size(3, 512) == 1


def test_large_networks_keep_their_caches_for_one_member():
    """A gradient step of [256, 256] networks takes so long that its fixed cost is not worth an idle core."""
    assert lane_size(9, minibatch_size=64, threads=2, weights=140_000, epochs=20) == 1


@given(lanes=MEMBERS, threads=THREADS, epochs=EPOCHS)
def test_every_epoch_of_every_lane_is_in_one_piece_in_order(lanes, threads, epochs):
    seen = {lane: 0 for lane in range(lanes)}
    for piece in pieces(lanes, threads=threads, epochs=epochs):
        assert piece.first == seen[piece.lane]
        assert piece.last > piece.first
        seen[piece.lane] = piece.last
    assert set(seen.values()) == {epochs}


@given(lanes=MEMBERS, threads=THREADS, epochs=EPOCHS)
def test_threads_take_at_most_an_epoch_longer_than_the_best_schedule(lanes, threads, epochs):
    assert makespan(lanes, threads=threads, epochs=epochs) <= max(lanes * epochs / threads, epochs) + 1


def makespan(lanes, *, threads, epochs):
    """Epochs until all is done by threads that take piece after piece, and wait for the first half of a lane before its
    second."""
    free, ended = [0] * threads, {}
    for piece in pieces(lanes, threads=threads, epochs=epochs):
        start = max(heapq.heappop(free), ended.get(piece.lane, 0))
        ended[piece.lane] = start + piece.last - piece.first
        heapq.heappush(free, ended[piece.lane])
    return max(free)
