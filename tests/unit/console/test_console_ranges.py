"""Ranges of artifacts (RFC 9110, section 14), and who is let in."""

from __future__ import annotations

import pytest
from dressage_console.artifacts import ByteRange, parse_range
from dressage_console.login import authorization, cookie_name
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 10_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_range_is_the_slice_of_the_bytes(size: int, first: int, last: int):
    content = bytes(i % 251 for i in range(size))
    if first >= size and last >= first:
        with pytest.raises(ValueError, match="end"):
            parse_range(f"bytes={first}-{last}", size)
        return
    part = parse_range(f"bytes={first}-{last}", size)
    if last < first:
        assert part is None
    else:
        assert part is not None and content[part.start : part.stop] == content[first : last + 1]


@given(st.integers(1, 10_000), st.integers(1, 20_000))
def test_a_suffix_is_the_end_of_the_bytes(size: int, length: int):
    assert parse_range(f"bytes=-{length}", size) == ByteRange(max(0, size - length), size)


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes", "bytes=", "bytes=-", "items=0-1", "bytes=0-1,4-5", "bytes=a-b", "bytes=²-", "bytes=0--1"],
)
def test_other_headers_ask_for_the_whole(header: str | None):
    assert parse_range(header, 10) is None


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=-0"])
def test_a_range_outside_is_refused(header: str):
    with pytest.raises(ValueError, match=r"end|suffix"):
        parse_range(header, 10)


def test_a_header_goes_before_the_cookie_of_the_port():
    cookies = "dressage-token-7401=mine; dressage-token-7500=other"
    assert authorization({"host": "127.0.0.1:7401", "cookie": cookies}) == "Bearer mine"
    assert authorization({"host": "127.0.0.1:7401", "cookie": cookies, "authorization": "Bearer own"}) == "Bearer own"
    assert authorization({"host": "console.example", "cookie": cookies}) is None
    assert authorization({"host": "x:1", "cookie": "[]{};=,"}) is None
    assert cookie_name("[::1]:7401") == "dressage-token-7401"
