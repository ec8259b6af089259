"""The message pipe: round trips, limits, and rubbish from the other side."""

import json
import os
import struct
import threading

import numpy as np
import pytest
from dressage.errors import DeadlineExceeded
from dressage.sandbox.pipe import Channel, ChannelClosed, ProtocolError, decode, encode, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

DTYPES = ["?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"]
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0)))
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.binary()
KEYS = st.text().filter(lambda key: key not in {"$array", "$bytes"})
VALUES = st.recursive(
    SCALARS | ARRAYS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
MESSAGES = st.dictionaries(KEYS, VALUES, max_size=5)


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a)


@pytest.fixture
def channels():
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    a, b = Channel(a_read, a_write, max_bytes=1 << 20), Channel(b_read, b_write, max_bytes=1 << 20)
    yield a, b
    a.close()
    b.close()


@given(MESSAGES)
@settings(max_examples=150, deadline=None)
def test_round_trip(message):
    assert same(message, unpack(encode(message)))


@given(st.lists(st.sampled_from([0, 1, 1000, 4095, 4096, 4097, 70_000, 200_000]), max_size=4), st.booleans())
@settings(max_examples=25, deadline=None)
def test_parts_of_any_size_arrive_whole(sizes, interrupted):
    """Parts below and above the size at which they are written without a copy, beyond a pipe's capacity."""
    message = {str(index): np.arange(size, dtype=np.uint8) for index, size in enumerate(sizes)} | {
        "b": b"x" * sum(sizes)
    }
    read, write = os.pipe()
    back_read, back_write = os.pipe()
    here, there = Channel(back_read, write), Channel(read, back_write)
    try:
        if interrupted:
            with pytest.raises(DeadlineExceeded):
                there.recv(timeout=0.001)
        sender = threading.Thread(target=lambda: [here.send(message, timeout=20) for _ in range(2)])
        sender.start()
        assert all(same(message, there.recv(timeout=20)) for _ in range(2))
        sender.join(20)
    finally:
        here.close()
        there.close()


def test_arrays_can_be_used_in_place_and_are_aligned():
    array = unpack(encode({"a": np.ones(3, np.int8), "b": np.arange(5.0)}))["b"]
    assert array.flags.writeable
    assert array.flags.aligned
    array += 1


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, {"$array": 1}, np.array([object()]), np.array(["text"]), np.ones(2, ">f8"), 1j, {1, 2}],
    ids=[
        "object",
        "number as key",
        "reserved key",
        "array of objects",
        "array of text",
        "big endian",
        "complex",
        "set",
    ],
)
def test_other_values_are_refused(value):
    with pytest.raises(ProtocolError):
        encode({"value": value})


def test_non_contiguous_arrays():
    array = np.arange(12.0).reshape(3, 4)[::-1, ::2]
    np.testing.assert_array_equal(unpack(encode({"a": array}))["a"], array)


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_rubbish_is_a_protocol_error(data):
    with pytest.raises(ProtocolError):
        unpack(data)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_reference_reaches_outside_the_payload(data):
    numbers = st.integers(-(2**70), 2**70) | st.integers(0, 40) | st.floats() | st.none() | st.booleans()
    reference = data.draw(
        st.tuples(
            st.sampled_from([*DTYPES, "O", "|O", "<U9", "V8", "<M8[s]", "x"]), st.lists(numbers, max_size=9), numbers
        )
        | st.lists(numbers, max_size=4)
    )
    kind = data.draw(st.sampled_from(["$array", "$bytes"]))
    text = json.dumps({"value": {kind: reference}}).encode()
    try:
        value = decode(text, bytearray(32))["value"]
    except ProtocolError:
        return
    size = value.nbytes if isinstance(value, np.ndarray) else len(value)
    assert size <= 32
    assert not isinstance(value, np.ndarray) or value.dtype.kind in "biuf"


def test_messages_over_a_pipe_both_ways(channels):
    a, b = channels
    big = np.random.default_rng(0).normal(size=100_000)
    sender = threading.Thread(target=a.send, args=({"big": big},), kwargs={"timeout": 10})
    sender.start()
    np.testing.assert_array_equal(b.recv(timeout=10)["big"], big)
    sender.join()
    b.send({"n": 1})
    b.send({"n": 2})
    assert [a.recv(timeout=1)["n"], a.recv(timeout=1)["n"]] == [1, 2]


def test_a_slow_message_is_taken_up_again(channels):
    a, b = channels
    data = encode({"n": 5})
    os.write(a._write_fd, data[:10])
    with pytest.raises(DeadlineExceeded):
        b.recv(timeout=0.05)
    os.write(a._write_fd, data[10:])
    assert b.recv(timeout=1) == {"n": 5}


def test_too_large_to_send_leaves_the_channel_usable(channels):
    a, b = channels
    with pytest.raises(ProtocolError, match="limit"):
        a.send({"x": np.zeros(1 << 20)})
    a.send({"n": 1}, timeout=1)
    assert b.recv(timeout=1) == {"n": 1}


def test_an_announced_giant_is_refused_before_it_comes(channels):
    a, b = channels
    os.write(a._write_fd, struct.pack("<4sIQ", b"DRS1", 10, 1 << 62))
    with pytest.raises(ProtocolError, match="exceeds the limit"):
        b.recv(timeout=1)
    with pytest.raises(ProtocolError, match="broken"):
        b.recv(timeout=1)


def test_nobody_takes_it(channels):
    a, _ = channels
    with pytest.raises(DeadlineExceeded):
        a.send({"x": np.zeros(1 << 16)}, timeout=0.1)
    with pytest.raises(ProtocolError, match="in part"):
        a.send({"n": 1})


def test_the_other_side_is_gone(channels):
    a, b = channels
    b.close()
    with pytest.raises(ChannelClosed):
        a.recv(timeout=1)
    with pytest.raises(ChannelClosed):
        a.send({"n": 1})
    with pytest.raises(ChannelClosed):
        b.recv()
