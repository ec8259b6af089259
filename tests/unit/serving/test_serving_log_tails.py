"""Error messages have the exception of a process, without the frames of its traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dressage.log_tails import without_tracebacks

PROGRAMS = {
    "plain": ("raise ValueError('why')", "ValueError: why"),
    "chained": ("try:\n 1/0\nexcept ZeroDivisionError as e:\n raise ValueError('why') from e", "ValueError: why"),
    "several lines": ("raise ValueError('why\\nand how')", "and how"),
    "syntax": ("eval('1 +')", "SyntaxError"),
    "group": ("raise ExceptionGroup('both', [ValueError('why'), TypeError('what')])", "ValueError: why"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_frames_go_and_exceptions_stay(name: str):
    program, cause = PROGRAMS[name]
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30).stderr
    assert "Traceback" in output and 'File "' in output
    shown = without_tracebacks(f"begin\n{output}end")
    assert "Traceback" not in shown and 'File "' not in shown
    assert cause in shown and shown.startswith("begin") and shown.endswith("end")
    middle = output[output.index('  File "') :]
    assert 'File "' not in without_tracebacks(middle) and cause in without_tracebacks(middle)


def test_other_text_stays_as_it_is():
    text = "starting\n  indented\n\nlast"
    assert without_tracebacks(text) == text
