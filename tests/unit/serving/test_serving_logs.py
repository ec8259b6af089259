"""Log entries: no values of variables, bounded in size, in both formats and from both libraries."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from dressage.serving import logs

SECRET = "a-token-that-nobody-may-read"


@pytest.fixture(params=["json", "text"])
def output(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure(format=request.param, stream=stream)
    yield stream
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


def fail(token: str, depth: int = 0) -> None:
    header = f"Bearer {token}"
    if depth:
        fail(token, depth - 1)
    raise ValueError(f"a request of {len(header)} characters")


@pytest.mark.parametrize("library", ["structlog", "logging"])
def test_a_traceback_has_no_values_and_a_bounded_length(output: io.StringIO, library: str):
    try:
        fail(SECRET, 200)
    except ValueError as error:
        if library == "structlog":
            structlog.get_logger("x").error("call failed", exc_info=error)
        else:
            logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
    text = output.getvalue()
    assert SECRET not in text and "locals" not in text
    assert "ValueError: a request of 35 characters" in text and "fail" in text
    assert len(text) < 12_000


@pytest.mark.parametrize("value", ["x" * 1_000_000, b"x" * 1_000_000, ["x"] * 1_000_000], ids=["text", "bytes", "list"])
def test_a_long_value_is_cut(output: io.StringIO, value: object):
    structlog.get_logger("x").info("event", field=value)
    logging.getLogger("x").warning("%s", "y" * 1_000_000)
    assert len(output.getvalue()) < 12_000 and "characters left out" in output.getvalue()


def test_a_long_number_is_an_entry_too(output: io.StringIO):
    structlog.get_logger("x").info("event", field=10**5000)
    assert "an integer of 16610 bits" in output.getvalue()


def test_short_values_stay_as_they_are():
    stream, before = io.StringIO(), structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure(format="json", stream=stream)
        structlog.get_logger("x").info("event", number=3, ratio=0.5, flag=True, nothing=None, names=["a"], text="b")
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers
        root.setLevel(level)
    entry = json.loads(stream.getvalue())
    assert {name: entry[name] for name in ("number", "ratio", "flag", "nothing", "names", "text")} == {
        "number": 3,
        "ratio": 0.5,
        "flag": True,
        "nothing": None,
        "names": ["a"],
        "text": "b",
    }
