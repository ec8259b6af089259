"""Replies to programs: where programs are found, the repairs of DSL text, and bounds for hostile replies."""

from __future__ import annotations

import time
from random import Random

import pytest
from dressage.programs import repairs
from dressage.programs.from_reply import MAX_CANDIDATES, UNENDED, from_reply
from dressage.programs.pretty import to_indented, to_python
from dressage.programs.syntax import KAREL, MINIGRID, Language, parse, to_text
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.programs.strategies import SEEDS, languages_and_programs, program

MOVE = "DEF run m( move m)"
PYTHON = "```python\ndef run():\n    move()\n```"


def texts(reply: str, language: Language = KAREL) -> list[tuple[str, int, str]]:
    """Form, line and text of each candidate; the reason in place of the text of a rejected one."""
    return [
        (item.form, item.line, to_text(item.program) if item.program else item.problem)
        for item in from_reply(reply, language)
    ]


PLACES = {
    "python fence": (f"Text.\n\n{PYTHON}\nMore.", [("python", 4, MOVE)]),
    "py fence": ("```py\ndef run(): move()\n```", [("python", 2, MOVE)]),
    "tildes": ("~~~Python\ndef run():\n  move()\n~~~", [("python", 2, MOVE)]),
    "fence without tag": ("```\ndef run():\n\tmove()\n```", [("python", 2, MOVE)]),
    "windows lines": ("```python\r\ndef run():\r\n    move()\r\n```\r\n", [("python", 2, MOVE)]),
    "indented fence": ("1. A\n   ```python\n   def run():\n     move()\n   ```", [("python", 3, MOVE)]),
    "fence without end": ("```python\ndef run():\n    move()\n", [("python", 2, MOVE)]),
    "two blocks": (f"{PYTHON}\n\n{PYTHON}", [("python", 2, MOVE), ("python", 7, MOVE)]),
    "dsl fence": (f"```dsl\n{MOVE}\n```", [("dsl", 2, MOVE)]),
    "dsl without tag": (f"```\n\n{MOVE}\n```", [("dsl", 3, MOVE)]),
    "python and dsl": (f"{PYTHON}\n```\n{MOVE}\n```", [("python", 2, MOVE), ("dsl", 6, MOVE)]),
    "one block with both": (
        f"```python\ndef run():\n    move()\n\n{MOVE}\n```",
        [("python", 2, MOVE), ("dsl", 5, MOVE)],
    ),
    "dsl before python": (f"```\n{MOVE}\ndef run():\n    move()\n```", [("dsl", 2, MOVE), ("python", 3, MOVE)]),
    "dsl as a comment": (f"```python\ndef run():\n    # {MOVE}\n    move()\n```", [("python", 2, MOVE)]),
    "dsl in the text": (f"The answer is {MOVE}\nand no other.", [("dsl", 1, MOVE)]),
    "dsl in the text after python": (f"{PYTHON}\nDSL: {MOVE}", [("python", 2, MOVE), ("dsl", 5, MOVE)]),
    "fenced dsl counts": (f"Like {MOVE}\n```\n{MOVE}\n```", [("dsl", 3, MOVE)]),
    "dsl on the line of the fence": (f"```{MOVE}```", [("dsl", 1, MOVE)]),
    "two in the text": (f"{MOVE} or\n{MOVE}", [("dsl", 1, MOVE), ("dsl", 2, MOVE)]),
    "python in the text": ("So:\n\ndef run():\n\n    move()\nThat is all.", [("python", 3, MOVE)]),
    "other block": ("```json\n{}\n```\n```\nfree text\n```", []),
    "nothing": ("I cannot help with that.", []),
    "empty": ("", []),
}


@pytest.mark.parametrize("name", PLACES)
def test_programs_are_found(name):
    reply, expected = PLACES[name]
    assert texts(reply) == expected


REPAIRED = [
    # text, body of the program, repairs
    ("DEF run m( move() turnLeft( ) m)", "move turnLeft", [repairs.DROPPED_CALLS]),
    ("DEF run m( move; turnLeft; m)", "move turnLeft", [repairs.DROPPED_MARKS]),
    ("DEF run m( 'move' \"turnLeft\" m)", "move turnLeft", [repairs.DROPPED_MARKS]),
    ("DEF run m( move m) and then move", "move", [repairs.CUT]),
    (
        "DEF run m( IF c( frontIsClear c) i( move w) turnLeft m)",
        "IF c( frontIsClear c) i( move i) turnLeft",
        [repairs.FIXED_CLOSERS],
    ),
    (
        "DEF run m( WHILE c( frontIsClear ) w( move ) )",
        "WHILE c( frontIsClear c) w( move w)",
        [repairs.FIXED_CLOSERS],
    ),
    (
        "DEF run m( WHILE c( frontIsClear c) w( IF c( leftIsClear c) i( move m)",
        "WHILE c( frontIsClear c) w( IF c( leftIsClear c) i( move i) w)",
        [repairs.ADDED_CLOSERS],
    ),
    (
        "DEF run m( IF c( not c( frontIsClear c) i( move i) m)",
        "IF c( not c( frontIsClear c) c) i( move i)",
        [repairs.ADDED_CLOSERS],
    ),
    ("DEF run m( WHILE frontIsClear w( move w) m)", "WHILE c( frontIsClear c) w( move w)", [repairs.ADDED_BRACKETS]),
    ("DEF run m( WHILE frontIsClear c) w( move w) m)", "WHILE c( frontIsClear c) w( move w)", [repairs.ADDED_BRACKETS]),
    (
        "DEF run m( WHILE c( not frontIsClear c) w( move w) m)",
        "WHILE c( not c( frontIsClear c) c) w( move w)",
        [repairs.ADDED_BRACKETS],
    ),
    (
        "DEF run m( WHILE c( not frontIsClear c) c) w( move w) m)",
        "WHILE c( not c( frontIsClear c) c) w( move w)",
        [repairs.ADDED_BRACKETS],
    ),
    (
        "DEF run m( WHILE c( and frontIsClear c( not c( not leftIsClear c) c) c) w( move w) m)",
        "WHILE c( and c( frontIsClear c) c( not c( not c( leftIsClear c) c) c) c) w( move w)",
        [repairs.ADDED_BRACKETS],
    ),
    (
        "DEF run m( IF c( frontIsClear c) i( move i) ELSE e( turnLeft e) m)",
        "IFELSE c( frontIsClear c) i( move i) ELSE e( turnLeft e)",
        [repairs.TO_IFELSE],
    ),
    ("DEF run m( IFELSE c( frontIsClear c) i( move i) m)", "IF c( frontIsClear c) i( move i)", [repairs.TO_IF]),
    (
        "DEF run m( IFELSE c( frontIsClear c) i( move i) ELSE e( e) m)",
        "IF c( frontIsClear c) i( move i)",
        [repairs.TO_IF],
    ),
    (
        "DEF run m( IF c( not c( markersPresent c) c) i( putMarker i) m)",
        "IF c( noMarkersPresent c) i( putMarker i)",
        [repairs.OPPOSITE_TEST],
    ),
    (
        "DEF run m( IF c( not c( noMarkersPresent c) c) i( pickMarker i) m)",
        "IF c( markersPresent c) i( pickMarker i)",
        [repairs.OPPOSITE_TEST],
    ),
    (
        "DEF run m( IF c( not c( True c) c) i( move i) IF c( not c( False c) c) i( move i) m)",
        "IF c( False c) i( move i) IF c( True c) i( move i)",
        [repairs.FOLDED],
    ),
    ("DEF run m( WHILE c( True c) w( move w) m)", "REPEAT R=19 r( move r)", [repairs.LOOP_TRUE]),
    ("DEF run m( WHILE c( False c) w( move w) m)", "REPEAT R=0 r( move r)", [repairs.LOOP_FALSE]),
    (
        "DEF run m( WHILE c( not c( False c) c) w( move w) m)",
        "REPEAT R=19 r( move r)",
        [repairs.FOLDED, repairs.LOOP_TRUE],
    ),
    ("DEF run m( REPEAT R=20 r( move r) m)", "REPEAT R=19 r( move r)", [repairs.CLAMPED]),
    ("DEF run m( REPEAT R=-3 r( move r) m)", "REPEAT R=0 r( move r)", [repairs.CLAMPED]),
    ("DEF run m( REPEAT R = 4 r( move r) m)", "REPEAT R=4 r( move r)", []),
    ("DEF run m(move REPEAT R=4r(move r)m)", "move REPEAT R=4 r( move r)", []),
    ("```python\ndef run():\n  while True:\n    move()\n```", "REPEAT R=19 r( move r)", [repairs.LOOP_TRUE]),
    ("```python\ndef run():\n  for i in range(99):\n    move()\n```", "REPEAT R=19 r( move r)", [repairs.CLAMPED]),
    (
        "```python\ndef run():\n  while not markersPresent():\n    move()\n```",
        "WHILE c( noMarkersPresent c) w( move w)",
        [repairs.OPPOSITE_TEST],
    ),
]


@pytest.mark.parametrize(("reply", "body", "changes"), REPAIRED, ids=[str(index) for index in range(len(REPAIRED))])
def test_each_listed_repair_is_applied_and_reported(reply, body, changes):
    candidate = from_reply(reply, KAREL)[0]
    assert candidate.problem == ""
    assert to_text(candidate.program) == f"DEF run m( {body} m)"
    assert list(candidate.repairs) == changes


@pytest.mark.parametrize(
    "condition",
    [
        'front_object_type("lava")',
        "front_object_type h( 'lava' h)",
        "front_object_type( lava )",
        "front_object_type lava",
    ],
)
def test_arguments_of_tests_are_repaired_too(condition):
    candidate = from_reply(f"DEF run m( IF c( {condition} c) i( left i) m)", MINIGRID)[0]
    assert to_text(candidate.program) == "DEF run m( IF c( front_object_type h( lava h) c) i( left i) m)"
    assert candidate.repairs


REJECTED = [
    ("```dsl\nmove turnLeft\n```", "there is no DEF"),
    ("DEF run m( move", "token 5: the text ends; expected one of move"),
    ("DEF run m( m)", "expected at least one statement"),
    ("DEF run m( jump m)", "token 4: unexpected token (got 'jump'); expected one of move"),
    ("DEF run m( move, turnLeft m)", "token 5: unexpected character (got ',')"),
    ("DEF run m( IF c( frontIsClear c) w( move w) m)", "token 8: unexpected token (got 'w('); expected i("),
    ("DEF run m( WHILE c( frontIsClear c) w( w) m)", "expected at least one statement"),
    ("DEF run m( WHILE c( wallAhead c) w( move w) m)", "expected one of frontIsClear"),
    ("DEF run m( REPEAT 5 r( move r) m)", "expected R=n"),
    ("DEF run m( IF c( frontIsClear c) i( move i) i) move m)", "the closing brackets do not match"),
    ("```python\ndef run():\n    move()\n    return\n```", "line 3: return is not supported"),
    ("DEF run m( " + "IF frontIsClear i( move i) " * 810 + "m)", "too long (got '5674 tokens')"),
    ("```python\nx = 3\n```", "line 1: an assignment outside of run()"),
]


@pytest.mark.parametrize(("reply", "problem"), REJECTED, ids=[str(index) for index in range(len(REJECTED))])
def test_what_no_repair_covers_is_rejected_with_the_reason(reply, problem):
    (candidate,) = from_reply(reply, KAREL)
    assert candidate.program is None
    assert problem in candidate.problem and not candidate.problem.startswith("program: ")


@given(languages_and_programs(largest_count=19))
def test_a_correct_program_is_read_without_repairs_of_its_text(case):
    language, expected = case
    changes = {repairs.FOLDED, repairs.LOOP_TRUE, repairs.LOOP_FALSE, repairs.OPPOSITE_TEST}
    normal, _ = repairs.normalise(expected, language)
    for text, tag in (
        (to_text(expected), "dsl"),
        (to_indented(expected).text, ""),
        (to_python(expected).text, "python"),
    ):
        (candidate,) = from_reply(f"```{tag}\n{text}\n```", language)
        assert candidate.program == normal
        assert set(candidate.repairs) <= changes
        assert candidate.repairs or normal == expected


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=300)
def test_a_damaged_program_is_repaired_or_rejected(seed, damages):
    random = Random(seed)
    words = to_text(program(seed, KAREL)).split()
    for _ in range(damages):
        place = random.randrange(len(words))
        words[place : place + 1] = random.choice(
            [[], [random.choice(words)] * 2, [")"], ["m)"], ["not"], ["R=99"], ["c("]]
        )
        if not words:
            return
    for candidate in from_reply(" ".join(words), KAREL):
        assert (candidate.program is None) == bool(candidate.problem)
        if candidate.program is not None:
            text = to_text(candidate.program)
            assert parse(text, KAREL) == candidate.program
            assert repairs.normalise(candidate.program, KAREL) == (candidate.program, ())


@given(st.text(max_size=120), st.sampled_from(["", "```python\n", "```\nDEF run", "DEF run m( ", "def run():\n "]))
@settings(max_examples=300)
def test_any_text_is_a_reply(text, head):
    for candidate in from_reply(head + text, KAREL):
        assert (candidate.program is None) == bool(candidate.problem)


HOSTILE = {
    "megabytes of text": "bla " * 1_000_000,
    "megabytes of python": "```python\ndef run():\n" + "    move()\n" * 500_000,
    "megabytes of dsl": "DEF run m( " + "move " * 1_000_000 + "m)",
    "many programs": f"{MOVE} " * 100_000,
    "many blocks": f"{PYTHON}\n" * 50_000,
    "many fences": "```\n" * 500_000,
    "many backticks": "`" * 2_000_000,
    "many spaces": "```python\n" + " " * 2_000_000,
    "many DEF": "DEF run " * 300_000,
    "deep dsl": "DEF run m( " + "IF c( frontIsClear c) i( " * 100_000,
    "deep conditions": "DEF run m( IF " + "not " * 100_000,
    "open brackets": "DEF run " + "(" * 1_000_000,
    "deep python": "```python\ndef run():\n if " + "not " * 100_000 + "frontIsClear(): move()",
    "quotes": "DEF run m( " + "'" * 1_000_000,
    "null": "\0" * 1_000_000,
    "surrogates": "```python\n" + "\ud800" * 1_000_000,
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
def test_giant_replies_are_read_soon_and_bounded(reply):
    start = time.process_time()
    candidates = from_reply(reply, KAREL)
    assert time.process_time() - start < 3
    assert len(candidates) <= MAX_CANDIDATES + 1
    assert all(len(candidate.problem) < 400 for candidate in candidates)


def test_a_block_without_an_end_is_reported():
    (candidate,) = from_reply(f"{PYTHON}\n```python\ndef run():\n    move()\n    move()", KAREL)[1:]
    assert to_text(candidate.program) == "DEF run m( move move m)"
    assert candidate.repairs == (UNENDED,)
    assert from_reply(PYTHON, KAREL)[0].repairs == ()


def test_programs_beyond_the_limit_are_reported():
    candidates = from_reply(f"{MOVE}\n" * 40, KAREL)
    assert [bool(item.program) for item in candidates] == [True] * MAX_CANDIDATES + [False]
    assert "more than 16 programs" in candidates[-1].problem
    assert candidates[-1].line == MAX_CANDIDATES + 1
