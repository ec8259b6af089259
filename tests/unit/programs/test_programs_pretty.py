"""Printed programs: they can be read back, and each statement has its line."""

from __future__ import annotations

import re

from dressage.programs.from_python import from_python
from dressage.programs.pretty import statements, to_indented, to_python
from dressage.programs.syntax import KAREL, Action, If, IfElse, Repeat, While, parse
from hypothesis import given

from tests.unit.programs.strategies import languages_and_programs

PYTHON_WORDS = {Repeat: "for", While: "while", If: "(el)?if", IfElse: "(el)?if"}
DSL_WORDS = {Repeat: "REPEAT", While: "WHILE", If: "IF", IfElse: "IFELSE"}


@given(languages_and_programs())
def test_python_text_is_lowered_to_the_same_program(case):
    language, program = case
    assert from_python(to_python(program).text, language) == program


@given(languages_and_programs())
def test_indented_text_is_parsed_to_the_same_program(case):
    language, program = case
    assert parse(to_indented(program).text, language) == program


@given(languages_and_programs())
def test_each_statement_has_the_line_that_begins_with_it(case):
    program = case[1]
    for printout, words in ((to_python(program), PYTHON_WORDS), (to_indented(program), DSL_WORDS)):
        lines = printout.text.split("\n")
        assert len(printout.lines) == len(list(statements(program)))
        assert sorted(set(printout.lines)) == list(printout.lines)
        for statement, line in zip(statements(program), printout.lines, strict=True):
            word = statement.name if isinstance(statement, Action) else words[type(statement)]
            assert re.match(rf" +{word}\b", lines[line - 1])


def test_a_program_in_both_forms():
    program = parse(
        "DEF run m( WHILE c( not c( markersPresent c) c) w( IFELSE c( frontIsClear c) i( move i) ELSE e( turnLeft e) w) "
        "REPEAT R=4 r( IFELSE c( True c) i( pickMarker i) ELSE e( IF c( leftIsClear c) i( move i) e) r) m)",
        KAREL,
    )
    assert to_python(program).text.split("\n") == [
        "def run():",
        "    while not markersPresent():",
        "        if frontIsClear():",
        "            move()",
        "        else:",
        "            turnLeft()",
        "    for i in range(4):",
        "        if True:",
        "            pickMarker()",
        "        elif leftIsClear():",
        "            move()",
    ]
    assert to_python(program).lines == (2, 3, 4, 6, 7, 8, 9, 10, 11)
    assert to_indented(program).text.split("\n")[:9] == [
        "DEF run m(",
        "    WHILE c( not c( markersPresent c) c) w(",
        "        IFELSE c( frontIsClear c) i(",
        "            move",
        "        i) ELSE e(",
        "            turnLeft",
        "        e)",
        "    w)",
        "    REPEAT R=4 r(",
    ]
    assert to_indented(program).lines == (2, 3, 4, 6, 9, 10, 11, 13, 14)
