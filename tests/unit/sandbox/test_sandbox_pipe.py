"""The message pipe: round trips, limits, and rubbish from the other side."""

import contextlib
import json
import os
import struct
import threading
import time
import tracemalloc

import numpy as np
import pytest
from dressage.errors import DeadlineExceeded
from dressage.sandbox.pipe import Channel, ChannelClosed, ProtocolError, check_values, decode, encode, unpack
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


def pack(document, payload=b""):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack("<4sIQ", b"DRS1", len(text), len(payload)) + text + payload


def receive(data):
    """What a trusted process makes of these bytes: the message or the error, its peak memory, and the most processor time that
    passes while another thread does not run. On a busy machine that thread waits longer, which is not counted."""
    read, write = os.pipe()
    back_read, back_write = os.pipe()
    channel = Channel(read, back_write)
    gaps, done = [0.0], threading.Event()

    def tick():
        before = time.process_time()
        while not done.is_set():
            time.sleep(0.002)
            now = time.process_time()
            gaps.append(now - before)
            before = now

    ticking = threading.Thread(target=tick)

    def send():
        with contextlib.suppress(OSError), os.fdopen(write, "wb", 0) as stream:
            view = memoryview(data)
            while view:
                view = view[stream.write(view) :]

    sender = threading.Thread(target=send, daemon=True)
    tracemalloc.start()
    ticking.start()
    sender.start()
    try:
        outcome = channel.recv(timeout=60)
    except ProtocolError as error:
        outcome = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        done.set()
        ticking.join()
        channel.close()
        os.close(back_read)
        sender.join(10)
    return outcome, peak, max(gaps)


COSTLY = {
    "lists": lambda: b'{"a":[' + b"[]," * (5 << 20) + b"0]}",
    "lists after a long text": lambda: b'{"t":"' + b'\\\\\\",' * (1 << 20) + b'","a":[' + b"[]," * (7 << 19) + b"0]}",
    "dicts": lambda: b'{"a":[' + b'{"b":{}},' * (1 << 20) + b"0]}",
    "numbers": lambda: b'{"a":[' + b"1," * (7 << 20) + b"0]}",
    "one long number": lambda: b'{"a":0.' + b"1" * (15 << 20) + b"}",
    "one text": lambda: json.dumps({"a": "é" * (2 << 20)}).encode(),
    "wide text": lambda: json.dumps({"a": "😀" + "a" * (15 << 20)}, ensure_ascii=False).encode(),
    "escapes": lambda: b'{"a":"' + b"\\u4e2d" * (5 << 19) + b'"}',
    "halves of pairs": lambda: b'{"a":"' + b"\\ud800" * (5 << 19) + b'"}',
    "bytes by many references": lambda: {"a": [{"$bytes": [0, 1 << 20]}] * 400},
    "arrays by many references": lambda: {"a": [{"$array": ["|u1", [1 << 20], 0]}] * 400},
    "overlapping bytes": lambda: {"a": [{"$bytes": [i, 1 << 19]} for i in range(400)]},
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_message_costs_no_more_memory_or_time_than_its_size_allows(name):
    document = COSTLY[name]()
    data = pack(document, bytes(1 << 20) if isinstance(document, dict) else b"")
    outcome, peak, pause = receive(data)
    assert peak < 40 * 2**20 + 8 * len(data), f"{peak / 2**20:.0f} MiB for {len(data) / 2**20:.0f} MiB"
    assert pause < 1.0, f"no other thread ran for {pause:.2f} s of processor time"
    if ("text" in name and "after" not in name) or name == "escapes":
        assert isinstance(outcome, dict)
    else:
        assert isinstance(outcome, ProtocolError), outcome


@given(
    st.lists(
        st.sampled_from([b'"', b"\\", b",", b"[", b"]", b"{", b"}", b":", b"a", b"0", b'""', b'"\\"']), max_size=60
    )
)
@settings(max_examples=300, deadline=None)
def test_values_are_counted_as_they_are_parsed(monkeypatch_module, pieces):
    """In chunks of any size, at least the values that the parser would build, and no text is taken for values."""
    text = b'{"a":[' + b"".join(pieces) + b"]}"
    try:
        document = json.loads(text)
    except ValueError:
        return
    count = values(document)
    with pytest.raises(ProtocolError):
        check_values(text, count - 1)
    check_values(text, count + 1 + len(document))


def values(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(1, len(inner)) * isinstance(value, (dict, list)) + sum(map(values, inner))


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dressage.sandbox.pipe._COUNTED", 7)
        yield patch


def test_the_largest_message_of_a_training_passes(channels):
    """The policies of a thousand members, the most that an assignment has."""
    from dressage_trainer.messages import EvaluateMessage, MemberPolicy

    shapes = {"weight": (4, 4), "bias": (4,)}
    weights = {f"layers.{i}.{name}": np.zeros(shape, np.float32) for i in range(6) for name, shape in shapes.items()}
    statistics = {f"s{i}": 0.1 * i for i in range(40)}
    card = {"environment": "HalfCheetah-v5", "statistics": statistics, "layers": [[64, "tanh"]] * 8}
    policies = tuple(MemberPolicy(f"member-{i}", 10**6, {**card, "index": i}, weights) for i in range(1000))
    message = EvaluateMessage(policies=policies).to_dict()
    data = encode(message)
    text_size = struct.unpack_from("<4sIQ", data)[1]
    back = decode(data[16 : 16 + text_size], bytearray(data[16 + text_size :]))
    assert len(back["policies"]) == 1000
    assert same(back["policies"][999]["weights"], weights)


def test_more_values_than_can_be_received_are_not_sent(channels):
    a, b = channels
    with pytest.raises(ProtocolError, match="values"):
        a.send({"a": [0] * 510_000}, timeout=1)
    a.send({"n": 1}, timeout=1)
    assert b.recv(timeout=1) == {"n": 1}
