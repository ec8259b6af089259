"""What sandboxed processes print: whatever it is, the trusted side reads it without an exception, within bounds, printable."""

import json
import re

from dressage.contracts.execute import line_of_stack
from dressage.contracts.failures import MAX_LINE, RewardError, reported_error
from dressage.log_tails import without_tracebacks
from dressage.sandbox import Limits, SandboxProcess
from dressage.sandbox.output import MAX_OUTPUT, excerpt, last_line, tail_text
from hypothesis import given, settings
from hypothesis import strategies as st

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NUMBERS = (
    st.from_regex(r"[-+]?[0-9_\u0660-\u0669]{1,40}", fullmatch=True) | st.just("9" * 5000) | st.just("0" * 50 + "7")
)
FORGED = st.builds('File "<generated>", line {}{}'.format, NUMBERS, st.text(max_size=3))
TEXTS = (
    st.text(st.characters())
    | FORGED
    | st.builds("\x1b[{}m{}".format, st.integers(), st.text())
    | st.just("Traceback\n")
)
OUTPUTS = st.binary(max_size=200) | st.lists(TEXTS, max_size=6).map("\n".join).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def fine(text, most):
    return isinstance(text, str) and len(text) <= most and not CONTROL.search(text) and text.encode() is not None


@given(OUTPUTS, st.integers(1, 3000))
@settings(max_examples=300, deadline=None)
def test_any_output_is_read(data, times):
    text = tail_text(data * times)
    assert fine(text, MAX_OUTPUT)
    assert fine(last_line(text), 300)
    assert fine(without_tracebacks(text), MAX_OUTPUT)
    line = line_of_stack(text)
    assert type(line) is int and 0 <= line <= MAX_LINE


@given(VALUES, st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_any_value_has_an_excerpt(value, most):
    assert fine(excerpt(value, most), most)


FIELDS = st.sampled_from(["rule", "line", "message", "seen", "term", "row", "episode", "failure", "other"])
REPLIES = st.dictionaries(FIELDS, VALUES | st.dictionaries(FIELDS, VALUES, max_size=6), max_size=6)


@given(REPLIES)
@settings(max_examples=300, deadline=None)
def test_any_failure_that_is_reported_becomes_an_error(reply):
    error = reported_error(reply, RewardError, rows=3)
    for text in (error.rule, error.seen, error.term, error.failure.message):
        assert fine(text, 400)
    assert 0 <= error.line <= MAX_LINE and error.row in (None, 0, 1, 2)
    json.dumps(error.failure.to_dict()).encode()


def test_the_line_of_a_stack():
    stack = 'Current thread 0x1 (most recent call first):\n  File "<generated>", line 12 in reward\n'
    assert line_of_stack(stack) == 12
    assert line_of_stack(f'File "<generated>", line {"9" * 5000}') == 0
    assert line_of_stack('File "<generated>", line ٣') == 0
    assert line_of_stack('File "/lib/x.py", line 3') == 0


def test_a_process_that_prints_rubbish(tmp_path):
    """Without an end, with control sequences, bytes that are no text and forged tracebacks."""
    limits = Limits(memory_bytes=1 << 29, wall_seconds=60.0)
    with SandboxProcess.start(
        "sandbox_targets:run_source", limits=limits, scratch=tmp_path, read_only=[], allow_unsandboxed=True
    ) as process:
        line = 'File "<generated>", line ' + "9" * 5000
        source = f"""
import os
for _ in range(200):
    os.write(2, {(chr(27) + "]0;title" + chr(7) + chr(27) + "[31mred" + line).encode()!r} + bytes(range(256)))
os._exit(1)
"""
        process.channel.send({"source": source})
        ended = process.wait(60)
    assert ended.code == 1
    assert fine(ended.stderr_tail, MAX_OUTPUT) and "\\u001b[31mred" in ended.stderr_tail
    assert line_of_stack(ended.stderr_tail) == 0
