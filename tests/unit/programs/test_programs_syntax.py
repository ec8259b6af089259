"""The tree and its canonical text: round trips, counts, and bounded errors for hostile text."""

from __future__ import annotations

import time

import pytest
from dressage.errors import InvalidArgument
from dressage.programs.syntax import (
    KAREL,
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_TOKENS,
    MINIGRID,
    Action,
    And,
    Constant,
    If,
    IfElse,
    Language,
    Measures,
    Not,
    Program,
    Repeat,
    Test,
    While,
    measure,
    parse,
    to_text,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.karel_reference import rows
from tests.unit.programs.strategies import languages_and_programs

AGGREGATES = [row for row in rows("karel") if row["kind"] == "agg"]


@given(languages_and_programs())
def test_text_and_tree_are_inverse(case):
    language, program = case
    text = to_text(program)
    assert parse(text, language) == program
    assert text.split(" ") == text.split()


def test_the_texts_of_the_conformance_files_are_canonical():
    texts = {(row["program"], name) for name in ("karel", "minigrid") for row in rows(name) if "program" in row}
    assert len(texts) > 500
    for text, name in texts:
        assert to_text(parse(text, {"karel": KAREL, "minigrid": MINIGRID}[name])) == text


def test_the_grammar_by_example():
    text = (
        "DEF run m( IFELSE c( and c( frontIsClear c) c( not c( True c) c) c) i( move i) ELSE e( REPEAT R=3 r( turnLeft r) e) "
        "WHILE c( markersPresent c) w( pickMarker w) m)"
    )
    condition = And(Test("frontIsClear"), Not(Constant(True)))
    assert parse(text, KAREL) == Program(
        (
            IfElse(condition, (Action("move"),), (Repeat(3, (Action("turnLeft"),)),)),
            While(Test("markersPresent"), (Action("pickMarker"),)),
        )
    )
    minigrid = "DEF run m( IF c( front_object_type h( lava h) c) i( left i) m)"
    assert parse(minigrid, MINIGRID) == Program((If(Test("front_object_type", "lava"), (Action("left"),)),))


@pytest.mark.parametrize("row", AGGREGATES, ids=lambda row: row["task"])
def test_counts_equal_the_recorded_ones(row):
    expected = Measures(row["tokens"], row["height"], row["sequence"], row["ast_nodes"])
    assert measure(parse(row["program"], KAREL)) == expected


@given(languages_and_programs())
def test_the_number_of_tokens_is_that_of_the_text(case):
    assert measure(case[1]).tokens == len(to_text(case[1]).split())


BAD = [
    ("", 1, "the text ends; expected DEF"),
    ("move", 1, "unexpected token (got 'move'); expected DEF"),
    ("DEF walk m( move m)", 2, "(got 'walk'); expected run"),
    ("DEF run m( m)", 4, "not a statement (got 'm)'); expected one of move, turnLeft"),
    ("DEF run m( move", 5, "the text ends; expected one of move"),
    ("DEF run m( move m) m)", 6, "text after the program"),
    ("DEF run m( move() m)", 4, "not a statement (got 'move()')"),
    ("DEF run m( mоve m)", 4, "not a statement"),
    ("DEF run m( move\u00a0move m)", 4, "not a statement"),
    ("DEF run m( REPEAT R=٣ r( move r) m)", 5, "not a count"),
    ("DEF run m( REPEAT R=-1 r( move r) m)", 5, "not a count (got 'R=-1'); expected R=n with n from 0 to 10000"),
    ("DEF run m( REPEAT R=03 r( move r) m)", 5, "not a count"),
    ("DEF run m( REPEAT R=10001 r( move r) m)", 5, "not a count"),
    (f"DEF run m( REPEAT R={'9' * 5000} r( move r) m)", 5, "not a count"),
    ("DEF run m( WHILE frontIsClear w( move w) m)", 5, "unexpected token (got 'frontIsClear'); expected c("),
    ("DEF run m( IF c( move c) i( move i) m)", 6, "not a condition (got 'move'); expected one of frontIsClear"),
    ("DEF run m( IF c( frontIsClear c) i( move i) ELSE e( move e) m)", 11, "not a statement (got 'ELSE')"),
    ("DEF run m( IFELSE c( frontIsClear c) i( move i) m)", 11, "expected ELSE"),
    ("DEF run m( WHILE c( frontIsClear c) w( move i) m)", 10, "not a statement (got 'i)'); expected one of"),
    ("DEF run m( IF c( and c( frontIsClear c) c) i( move i) m)", 10, "unexpected token (got 'c)'); expected c("),
    ("DEF run m( \ud800 m)", 4, "not a statement"),
]


@pytest.mark.parametrize(("text", "token", "message"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_errors_name_the_token_and_what_is_expected(text, token, message):
    with pytest.raises(InvalidArgument) as error:
        parse(text, KAREL)
    assert error.value.message.startswith(f"program: token {token}: ")
    assert message in error.value.message
    assert error.value.metadata == {"token": str(token)}
    error.value.message.encode()


@pytest.mark.parametrize("argument", ["", "key", "h("])
def test_arguments_of_tests_are_a_fixed_set(argument):
    with pytest.raises(InvalidArgument, match="not an argument of the test"):
        parse(f"DEF run m( IF c( front_object_type h( {argument} h) c) i( left i) m)", MINIGRID)


HOSTILE = {
    "megabytes": "DEF run m( " + "move " * 1_000_000 + "m)",
    "one long token": "x" * MAX_CHARACTERS,
    "many tokens": "DEF run m( " + "move " * MAX_TOKENS + "m)",
    "deep blocks": "DEF run m( " + "REPEAT R=1 r( " * 1300,
    "deep conditions": "DEF run m( IF c( " + "not c( " * 2000,
    "deep operators": "DEF run m( IF c( " + "and c( " * 2000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_ends_in_a_short_error_soon(text):
    start = time.process_time()
    with pytest.raises(InvalidArgument) as error:
        parse(text, KAREL)
    assert time.process_time() - start < 1
    assert len(error.value.message) < 400


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["DEF", "run", "m(", "m)", "IF", "c(", "c)", "i(", "i)", "move", "not", "R=1"])).map(
        " ".join
    )
)
@settings(max_examples=300)
def test_any_text_is_a_program_or_an_invalid_argument(text):
    try:
        program = parse(text, KAREL)
    except InvalidArgument:
        return
    assert to_text(program) == " ".join(text.split())


def test_depth_is_allowed_up_to_its_limit():
    def nested(levels: int) -> str:
        return "DEF run m( " + "REPEAT R=1 r( " * levels + "move" + " r)" * levels + " m)"

    assert measure(parse(nested(MAX_DEPTH - 1), KAREL)).height == MAX_DEPTH
    with pytest.raises(InvalidArgument, match=f"nested too deeply.*at most {MAX_DEPTH}"):
        parse(nested(MAX_DEPTH), KAREL)


@pytest.mark.parametrize("language", [KAREL, MINIGRID], ids=lambda language: language.name)
def test_a_language_has_distinct_unreserved_names(language):
    for name in ("WHILE", "run", "m(", "", "while", "a b", language.actions[0]):
        with pytest.raises(InvalidArgument, match=f"^language {language.name}: "):
            Language(language.name, (*language.actions, name), language.tests)
