"""Replies with parameters: every vector is read from both formats, and every corruption is a problem of the reply."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.registry import role_of
from hypothesis import assume, given
from hypothesis import strategies as st

BRIEF = pb.Brief(intent="balance the pole", environment="CartPole-v1")
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
VECTORS = st.lists(NUMBERS, min_size=1, max_size=30)
TABLES = st.lists(st.integers(0, 3), min_size=1, max_size=30)
FREE = {"kind": "linear"}
TABLE = {"kind": "table", "choices": 4, "enforced": True}


def task_of(size, critic=False, **form):
    """A task of the proposer, or of the critic, which reads the same replies."""
    whole = pb.ParameterForm(size=size, **(form or FREE))
    if critic:
        return pb.CriticTask(brief=BRIEF, form=whole, proposal=pb.ParameterTrial(values=[0.0] * size))
    return pb.ParameterProposerTask(brief=BRIEF, form=whole)


def read(text, task):
    return list(role_of(task).parse(text, task).values)


def problems(text, task):
    with pytest.raises(ReplyProblem) as caught:
        role_of(task).parse(text, task)
    return caught.value.problems


def as_array(values):
    return f"## Explanation\nWhy not.\n\n```json\n{json.dumps(list(values))}\n```\n"


def as_lines(values, mark=": "):
    lines = "\n".join(f"params[{index}]{mark}{value!r}" for index, value in enumerate(values))
    return f"## Explanation\nWhy not.\n\n{lines}\n"


FORMATS = st.sampled_from([as_array, as_lines])


@given(values=VECTORS, form=FORMATS, critic=st.booleans())
def test_any_vector_is_read_from_both_formats(values, form, critic):
    task = task_of(len(values), critic=critic)
    assert read(form(values), task) == values
    assert role_of(task).parse(form(values), task).explanation == "Why not."


@given(values=TABLES, form=FORMATS)
def test_any_table_is_read_from_both_formats(values, form):
    assert read(form(values), task_of(len(values), **TABLE)) == values


@given(values=VECTORS, digits=st.integers(3, 9), data=st.data())
def test_numbers_may_be_written_in_any_usual_form(values, digits, data):
    task = task_of(len(values))
    shape = data.draw(st.sampled_from(["{:.%de}", "{:.%dg}", "{:+.%de}"])) % digits
    written = [shape.format(value) for value in values]
    near = [float(text) for text in written]
    assume(all(abs(value) <= 3.4028234663852886e38 for value in near))
    ends = st.sampled_from(["", ".", ",", ";", "**", "`"])
    rows = [f"- **params[{i}]** = {text}{data.draw(ends)}" for i, text in enumerate(written)]
    assert read("\n".join(rows), task) == near
    assert (
        read(", ".join(f"params[{i}]: {text}" for i, text in enumerate(written)).replace("-", "\u2212"), task) == near
    )


@given(values=VECTORS, form=FORMATS, data=st.data())
def test_any_corruption_is_a_problem(values, form, data):
    size, task = len(values), task_of(len(values))
    index = data.draw(st.integers(0, size - 1))
    kind = data.draw(st.sampled_from(["missing", "surplus", "again", "text", "not finite", "both formats", "cut off"]))
    reply = form(values)
    if kind == "missing":
        rest = values[:index] + values[index + 1 :]
        reply = as_array(rest) if form is as_array else reply.replace(f"params[{index}]: {values[index]!r}\n", "\n")
    elif kind == "surplus":
        reply = form([*values, data.draw(NUMBERS)])
    elif kind == "again":
        place = data.draw(st.sampled_from(["{0}\n{1}", "{1}\n{0}"]))
        again = f"On reflection params[{index}]: {data.draw(NUMBERS)!r} is better."
        reply = place.format(reply, again)
    elif kind == "text":
        bad = data.draw(st.sampled_from(["zero", "1/2", "0.5→0.7", "x", "--1", "1e", "0x10", "1_000", "None"]))
        shown = [repr(value) for value in values]
        shown[index] = f'"{bad}"' if form is as_array else bad
        reply = _spelled(shown, form)
    elif kind == "not finite":
        shown = [repr(value) for value in values]
        shown[index] = data.draw(st.sampled_from(["NaN", "Infinity", "-Infinity", "1e400", "1e39", "9" * 400]))
        reply = _spelled(shown, form)
    elif kind == "both formats":
        reply = as_array(values) + "\n" + as_lines(values)
    else:
        reply = reply[: reply.index("```json" if form is as_array else "params[0]") + data.draw(st.integers(0, 8))]
    assert problems(reply, task)


def _spelled(texts, form):
    if form is as_array:
        return f"```json\n[{', '.join(texts)}]\n```"
    return "\n".join(f"params[{index}]: {text}" for index, text in enumerate(texts))


@given(text=st.text(st.sampled_from('params[]0123:=.-e` \n{}",json'), max_size=200), size=st.integers(1, 4))
def test_no_reply_breaks_the_parser(text, size):
    with suppress(ReplyProblem):
        values = read(text, task_of(size))
        assert len(values) == size and all(math.isfinite(struct.unpack("f", struct.pack("f", v))[0]) for v in values)


def test_trailing_prose_does_not_overwrite_a_value():
    task = task_of(2, **TABLE)
    reported = problems("params[0]: 1\nparams[1]: 2\n\nI first thought of params[1]: 3.", task)
    assert reported == ("params[1] is given 2 times (2, 3.); give it exactly once",)
    with_array = problems("```json\n[1, 2]\n```\nI first thought of params[1] = 3.", task)
    assert "as a JSON block and again as params[1]" in with_array[0]


def test_all_problems_are_reported_together():
    task = task_of(6, kind="linear", range=6, enforced=True)
    text = "params[0]: 1\nparams[0]: 1\nparams[1]: 7.5\nparams[2]: two\nparams[9]: 0\nparams[x]: 0\nparams[4]: -6"
    assert problems(text, task) == (
        "there is no params[9], params[x]; the parameters are params[0] to params[5]",
        "params[3], params[5] are missing",
        "params[0] is given 2 times (1, 1); give it exactly once",
        "params[2] is 'two'; it must be a finite number",
        "params[1] is 7.5; it must be between -6 and 6",
    )


@pytest.mark.parametrize("form", [as_array, as_lines])
def test_limits_hold_only_where_they_are_enforced(form):
    values = [6.5, -1e6, 0.0]
    assert read(form(values), task_of(3, kind="linear", range=6)) == values
    enforced = task_of(3, kind="linear", range=6, enforced=True)
    assert problems(form(values), enforced) == (
        "params[0] is 6.5; it must be between -6 and 6",
        "params[1] is -1000000; it must be between -6 and 6",
    )
    assert read(form([6.0, -6.0, 0.0]), enforced) == [6.0, -6.0, 0.0]
    assert read(form(values), task_of(3, kind="mlp", enforced=True)) == values


def test_tables_need_integers():
    reported = problems(as_lines([0, 1.5, 4, -1]), task_of(4, **TABLE))
    assert [problem.partition(";")[0] for problem in reported] == [
        "params[1] is 1.5",
        "params[2] is 4",
        "params[3] is -1",
    ]
    assert "an integer from 0 to 3" in reported[0]
    assert read(as_array([0, 1.0, 3]), task_of(3, **TABLE)) == [0, 1, 3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I would rather not.", "there are no parameters"),
        ("[1, 2]\nas you wish", "cannot be read"),
        ("```json\n[1, 2]", "opened and not closed"),
        ("```json\n[1, 2]\n```\n```json\n[1, 2]\n```", "2 JSON blocks"),
        ("```json\n[1, 2\n```", "cannot be read"),
        ('```json\n{"values": [1, 2]}\n```', "no entry 'params'"),
        ('```json\n{"params": [1, 2], "params": [3, 4]}\n```', "'params' is given twice"),
        ('```json\n{"params": {"0": 1}}\n```', "a dict"),
        ("```json\n3\n```", "a int"),
        ("```json\n[true, 2]\n```", "params[0] is true"),
        ("```json\n[[1], 2]\n```", "params[0] is [1]"),
        ("```json\n" + "[" * 100_000 + "\n```", "JSON"),
        ("params[0]: 1, params[1] == 2", "params[1] is missing"),
    ],
)
def test_problems_of_a_reply_are_named(text, problem):
    assert problem in "; ".join(problems(text, task_of(2)))


def test_an_object_may_hold_the_explanation():
    task = task_of(2)
    text = '```json\n{"explanation": "params[0]: 3 was worse.", "params": [1, 2]}\n```'
    result = role_of(task).parse(text, task)
    assert list(result.values) == [1, 2] and result.explanation == "params[0]: 3 was worse."
    assert read('{"params": [1, 2]}', task) == read("[1, 2]", task) == [1, 2]


def test_the_problems_of_a_long_vector_are_bounded():
    task = task_of(5000, kind="mlp", range=1, enforced=True)
    reported = problems(as_array([9.0] * 4000), task)
    assert len(reported) < 20 and sum(map(len, reported)) < 2000 and "988 more parameters" in reported[-1]
    assert problems("params[0]: 1", task)[0].endswith("params[12] and 4987 more are missing")
