"""Messages between a trusted process and a sandboxed one, over a pair of pipes.

A message is a dict of JSON values plus numpy arrays and bytes. On the wire: a fixed header (magic, length of the JSON
part, length of the payload), the JSON part, then the raw buffers, each aligned to 64 bytes so that arrays can be used
in place. Arrays and bytes stand in the JSON part as ``{"$array": [dtype, shape, offset]}`` and
``{"$bytes": [offset, length]}``, each behind the one before it: no part of a buffer is read twice, so that what a message
decodes to is at most as large as the message. Nothing is unpickled or evaluated, and every size that the other side sends is
checked before memory is allocated for it: the reader may be the trusted side and the writer hostile. Values are counted before
the JSON part is parsed, in chunks, so that other threads run meanwhile.

numpy is imported on first use only, because the sandboxed side opens its channel before it may import large packages.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from dressage.errors import DeadlineExceeded, DressageError, FailedPrecondition, Unavailable

MAX_BYTES = 256 * 1024 * 1024
MAX_JSON_BYTES = 16 * 1024 * 1024
_MAGIC = b"DRS1"
_HEADER = struct.Struct("<4sIQ")
_ALIGN = 64
_CHUNK = 1 << 20
MAX_VALUES = 500_000
"""Values of the JSON part, such as numbers, texts, lists and references. The largest messages have some 300,000: the policies
of a thousand members. The limit of bytes alone would allow millions of lists, of 50 times their size in memory."""
_MAX_DIMENSIONS = 8
# The reader recurses: nesting without a bound would end it.
_MAX_DEPTH = 64
_SMALL = 4096
_COUNTED = 1 << 16
"""A JSON part up to this size is parsed without counting; a longer one is counted in chunks of it."""
_LONG_NUMBER = re.compile(rb"[0-9]{400}")
"""A number that takes long to convert; 128 bits have 39 digits."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_VIEWS = 64
# Numbers only: an array of objects could be read by unpickling alone.
_DTYPES = frozenset({"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"})
_RESERVED = frozenset({"$array", "$bytes"})

Message = dict[str, Any]
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading a message of a sandboxed process may raise where the message is not what was agreed."""


class ProtocolError(DressageError):
    """The other side sent an invalid or too large message; the channel cannot be used any more."""

    default_reason = "SANDBOX_PROTOCOL"


class ChannelClosed(Unavailable):
    """The other side closed its end: it ended or was ended."""

    default_reason = "SANDBOX_CHANNEL_CLOSED"


def encode(message: Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of ``message``.

    :param message: JSON scalars, lists, tuples, dicts with string keys, bytes, numpy arrays and numpy scalars.
    :raises ProtocolError: a value of another type, a reserved key, or more than ``max_bytes`` in all.
    """
    return b"".join(_parts(message, max_bytes))


def _parts(message: Mapping[str, Any], max_bytes: int, max_values: int | None = None) -> list[bytes | memoryview]:
    """Return the bytes of ``message`` in parts; arrays and bytes are not copied."""
    buffers: list[bytes | memoryview] = []
    size = 0

    def place(buffer: bytes | memoryview, length: int) -> int:
        nonlocal size
        start = -size % _ALIGN
        buffers.append(b"\0" * start)
        buffers.append(buffer)
        offset = size + start
        size = offset + length
        if size > max_bytes:
            raise ProtocolError(f"the message is larger than the limit of {max_bytes} bytes")
        return offset

    try:
        text = json.dumps(_plain(message, place), separators=(",", ":"), check_circular=False).encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the message cannot be written as JSON: {error}") from error
    if len(text) > MAX_JSON_BYTES or len(text) + size > max_bytes:
        raise ProtocolError(
            f"the message is larger than the limit of {max_bytes} bytes ({MAX_JSON_BYTES} without its arrays)"
        )
    if max_values is not None:
        check_values(text, max_values)
    return [_HEADER.pack(_MAGIC, len(text), size) + text, *buffers]


def _plain(value: Any, place: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        # Subclasses (an IntEnum, numpy.float64, which is a float) are written as their base type.
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key in _RESERVED:
                raise ProtocolError(f"a message key must be a string other than $array and $bytes, got {key!r}")
        return {key: _plain(item, place) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, place) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        view = memoryview(value).cast("B")
        return {"$bytes": [place(view, len(view)), len(view)]}
    return _plain_array(value, place)


def _plain_array(value: Any, place: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise ProtocolError(f"a message may not hold a {type(value).__name__}")
    array = np.ascontiguousarray(value).reshape(value.shape)
    if array.dtype.str not in _DTYPES:
        raise ProtocolError(f"a message may not hold an array of dtype {array.dtype}")
    return {
        "$array": [
            array.dtype.str,
            list(array.shape),
            place(array.reshape(-1).view(np.uint8).data, array.nbytes),
        ]
    }


def decode(text: bytes | bytearray | memoryview, payload: bytearray, *, max_values: int | None = MAX_VALUES) -> Message:
    """Return the message of a JSON part and its buffers; arrays are views of ``payload``.

    :param max_values: bound for the values in the JSON part; None: none.
    :raises ProtocolError: the data is not what `encode` writes.
    """
    text = bytes(text)
    if max_values is not None:
        check_values(text, max_values)
    try:
        document = json.loads(text.decode())
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        message = _restore(document, _Buffers(payload)) if isinstance(document, (dict, list)) else document
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the message is not valid: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a message must be a dict, got {type(message).__name__}")
    return message


def check_values(text: bytes, most: int) -> None:
    """Count the values of a JSON part without building them.

    :raises ProtocolError: there are more than ``most``, or a number is too long.
    """
    if len(text) <= _COUNTED:
        return
    count, inside, escape = 0, False, b""
    for start in range(0, len(text), _COUNTED):
        chunk = escape + text[start : start + _COUNTED]
        whole = chunk.rstrip(b"\\")
        escape = b"\\" * ((len(chunk) - len(whole)) % 2)  # it escapes the first character of the next chunk
        parts = whole.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        plain = b" ".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
        count += plain.count(b",") + plain.count(b"[") + plain.count(b"{")
        if count > most:
            raise ProtocolError(f"a message has more than {most} values")
        if _LONG_NUMBER.search(plain):
            raise ProtocolError("a message holds a number of hundreds of digits")


def unpack(data: bytes) -> Message:
    """Return the message that `encode` packed into ``data``: data of this process, not counted.

    :raises ProtocolError: it is no such thing.
    """
    if len(data) < _HEADER.size:
        raise ProtocolError("the message is cut short")
    magic, text_size, payload_size = _HEADER.unpack_from(data)
    start = _HEADER.size + text_size
    if magic != _MAGIC or start + payload_size != len(data):
        raise ProtocolError("this is not a packed message")
    return decode(data[_HEADER.size : start], bytearray(data[start:]), max_values=None)


class _Buffers:
    """The buffers of a message, which its references read in their order."""

    def __init__(self, payload: bytearray) -> None:
        self.payload = payload
        self._end = 0

    def take(self, offset: int, length: int) -> bool:
        """Return whether a reference may read these bytes: they are in the payload, and behind those before."""
        if offset < self._end or offset + length > len(self.payload):
            return False
        self._end = offset + length
        return True


def _restore(value: dict[str, Any] | list[Any], buffers: _Buffers, depth: int = 0) -> Any:
    """Put arrays and bytes in the places of their references."""
    if depth > _MAX_DEPTH:
        raise ProtocolError(f"a message is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                value[index] = _restore(item, buffers, depth + 1)
        return value
    if _RESERVED.isdisjoint(value):
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                value[key] = _restore(item, buffers, depth + 1)
        return value
    if len(value) != 1:
        raise ProtocolError("a message holds a malformed buffer reference")
    ((kind, reference),) = value.items()
    return _restore_array(reference, buffers) if kind == "$array" else _restore_bytes(reference, buffers)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_BYTES


def _restore_bytes(reference: Any, buffers: _Buffers) -> bytes:
    match reference:
        case [int(offset), int(length)] if _is_count(offset) and _is_count(length):
            if buffers.take(offset, length):
                return bytes(memoryview(buffers.payload)[offset : offset + length])
    raise ProtocolError("a message holds a malformed bytes reference")


def _restore_array(reference: Any, buffers: _Buffers) -> Any:
    import numpy as np

    match reference:
        case [str(name), list(shape), int(offset)] if name in _DTYPES and _is_count(offset):
            if len(shape) <= _MAX_DIMENSIONS and all(_is_count(extent) for extent in shape):
                dtype = np.dtype(name)
                # In integers of Python, which hostile extents cannot make overflow.
                count = math.prod(shape)
                if buffers.take(offset, count * dtype.itemsize):
                    if not count:
                        return np.empty(shape, dtype)
                    return np.frombuffer(buffers.payload, dtype, count, offset).reshape(shape)
    raise ProtocolError("a message holds a malformed array reference")


class Channel:
    """Both directions of a conversation; either side may be hostile to the other.

    Sending and receiving may each happen in one thread at a time; two threads (one per direction) are fine.

    :param read_fd: descriptor to read from; owned by the channel from now on.
    :param write_fd: descriptor to write to; owned as well.
    :param max_bytes: bound for one message in either direction.
    :param max_reply_bytes: bound for a message that is received, where it is lower.
    """

    def __init__(
        self, read_fd: int, write_fd: int, *, max_bytes: int = MAX_BYTES, max_reply_bytes: int = MAX_BYTES
    ) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._max_bytes = min(max_bytes, MAX_BYTES)
        self._max_reply_bytes = min(max_reply_bytes, self._max_bytes)
        self._received = bytearray()
        self._payload = bytearray()
        self._payload_bytes = 0  # of the payload that have arrived
        self._send_lock, self._receive_lock = threading.Lock(), threading.Lock()
        self._broken = ""
        self._closed = False
        for descriptor in (read_fd, write_fd):
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when data arrives."""
        return self._read_fd

    def send(self, message: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Send one message.

        :param timeout: seconds to wait for the other side to receive it; None: for as long as it lives.
        :raises ProtocolError: the message is not one, or too large (the channel stays usable).
        :raises DeadlineExceeded: part of it may be sent, so the channel is broken.
        :raises ChannelClosed: the other side is gone.
        """
        data = _views(_parts(message, self._max_bytes, MAX_VALUES))
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._send_lock:
            self._usable()
            while data:
                try:
                    _advance(data, os.writev(self._write_fd, data[:_MAX_VIEWS]))
                except BlockingIOError:
                    if not self._wait(self._write_fd, select.POLLOUT, deadline):
                        self._broken = "an earlier message was sent in part only"
                        raise DeadlineExceeded(
                            f"the message was not received by the other side within {timeout} s"
                        ) from None
                except OSError as error:
                    raise ChannelClosed(f"the other side of the channel is closed: {error}") from error

    def recv(self, *, timeout: float | None = None) -> Message:
        """Return the next message.

        :param timeout: seconds to wait for the whole of it; None: for as long as the other side lives.
        :raises DeadlineExceeded: it did not arrive in time; a later call continues with the part received.
        :raises ChannelClosed: the other side ended.
        :raises ProtocolError: the data is not a message or exceeds the limits; the channel is broken.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._receive_lock:
            self._usable()
            self._fill(_HEADER.size, deadline, timeout)
            magic, text_size, payload_size = _HEADER.unpack_from(self._received)
            try:
                if magic != _MAGIC:
                    raise ProtocolError("the received data is not a message")
                if text_size > MAX_JSON_BYTES or text_size + payload_size > self._max_reply_bytes:
                    raise ProtocolError(
                        f"a message of {text_size + payload_size} bytes exceeds the limit of {self._max_reply_bytes} bytes "
                        f"({MAX_JSON_BYTES} without its arrays)"
                    )
                self._fill(_HEADER.size + text_size, deadline, timeout)
                self._fill_payload(payload_size, deadline, timeout)
                text, payload = bytes(self._received[_HEADER.size :]), self._payload
                self._received, self._payload, self._payload_bytes = bytearray(), bytearray(), 0
                return decode(text, payload)
            except ProtocolError as error:
                self._broken = error.message
                raise

    def close(self) -> None:
        """Close both descriptors; safe to call twice."""
        if not self._closed:
            self._closed = True
            os.close(self._read_fd)
            os.close(self._write_fd)

    def release(self) -> tuple[int, int]:
        """Give the descriptors for reading and writing to the caller, who closes them; the channel is closed.

        :raises ChannelClosed: it is closed already.
        """
        self._usable()
        self._closed = True
        return self._read_fd, self._write_fd

    def _usable(self) -> None:
        if self._closed:
            raise ChannelClosed("the channel is closed")
        if self._broken:
            raise ProtocolError(f"the channel is broken: {self._broken}")

    def _fill(self, size: int, deadline: float | None, timeout: float | None) -> None:
        """Read until header and JSON part have this size."""
        while (left := size - len(self._received)) > 0:
            part = bytearray(min(_CHUNK, left))
            self._received += memoryview(part)[: self._read_into(memoryview(part), deadline, timeout)]

    def _fill_payload(self, size: int, deadline: float | None, timeout: float | None) -> None:
        """Read the payload to where arrays stay: no copy is made of it. Memory is allocated as it arrives."""
        while self._payload_bytes < size:
            if self._payload_bytes == len(self._payload):
                self._payload.extend(bytes(min(size, max(_CHUNK, 2 * len(self._payload))) - len(self._payload)))
            with memoryview(self._payload) as view:
                self._payload_bytes += self._read_into(view[self._payload_bytes :], deadline, timeout)

    def _read_into(self, view: memoryview, deadline: float | None, timeout: float | None) -> int:
        """Read what is there, at least a byte and at most what fits; return the number of bytes."""
        while True:
            try:
                count = os.readv(self._read_fd, [view])
            except BlockingIOError:
                if not self._wait(self._read_fd, select.POLLIN, deadline):
                    raise DeadlineExceeded(f"no message arrived within {timeout} s") from None
                continue
            except OSError as error:
                raise ChannelClosed(f"the channel cannot be read: {error}") from error
            if not count:
                raise ChannelClosed("the other side closed the channel")
            return count

    @staticmethod
    def _wait(descriptor: int, event: int, deadline: float | None) -> bool:
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            return False
        poll = select.poll()
        poll.register(descriptor, event)
        return bool(poll.poll(None if remaining is None else math.ceil(remaining * 1000)))


def _views(parts: list[bytes | memoryview]) -> list[memoryview]:
    """Return views of the parts to write; small ones are joined, because each costs more than its copy."""
    views: list[memoryview] = []
    small: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < _SMALL:
            small.append(part)
            continue
        views += [memoryview(b"".join(small)), memoryview(part)]
        small = []
    return [view for view in [*views, memoryview(b"".join(small))] if view]


def _advance(views: list[memoryview], count: int) -> None:
    """Drop the first bytes, which are written."""
    while count:
        step = min(count, len(views[0]))
        count -= step
        if step == len(views[0]):
            del views[0]
        else:
            views[0] = views[0][step:]


class _Companion:
    """The channel of this process to another sandboxed one that works for it, such as the simulator of an environment pack.

    The supervisor starts both and hands over its end of the other's channel, so that messages take no detour through it.
    Neither process trusts the other: the channel checks every size, and the receiver the form of what it gets.
    """

    channel: Channel | None = None


def attach_companion(read_fd: int, write_fd: int) -> None:
    """Set this process's companion; called once, at its start."""
    _Companion.channel = Channel(read_fd, write_fd)


def companion_channel() -> Channel:
    """Return the channel to this process's companion.

    :raises FailedPrecondition: it was started without one.
    """
    if _Companion.channel is None:
        raise FailedPrecondition("this process was started without a companion", reason="NO_COMPANION")
    return _Companion.channel
