from __future__ import annotations

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.programs.engine.grammar import KAREL_GRAMMAR, MINIGRID_GRAMMAR
from dressage.programs.engine.trees import flatten, unflatten
from dressage.programs.search.draws import neighbours, random_programs
from dressage.programs.syntax import KAREL, Action, Program, Repeat, parse, to_text

COMPOUND = (
    "DEF run m( IFELSE c( or c( not c( not c( frontIsClear c) c) c) c( and c( True c) c( markersPresent c) c) c)"
    " i( move REPEAT R=0 r( turnLeft r) i) ELSE e( WHILE c( False c) w( pickMarker w) e) putMarker m)"
)


@pytest.mark.parametrize("text", ["DEF run m( move m)", COMPOUND])
def test_flat_nodes_unfold_to_the_same_program(text: str) -> None:
    program = parse(text, KAREL)
    assert to_text(unflatten(flatten(program, KAREL), KAREL)) == text


@pytest.mark.parametrize("grammar", [KAREL_GRAMMAR, MINIGRID_GRAMMAR])
def test_drawn_programs_parse_and_flatten_to_themselves(grammar) -> None:  # type: ignore[no-untyped-def]
    for program in random_programs(grammar, 3, 300):
        assert parse(to_text(program), grammar.language) == program
        assert unflatten(flatten(program, grammar.language), grammar.language) == program


def test_nodes_are_in_preorder_with_right_leaning_sequences() -> None:
    nodes = flatten(parse("DEF run m( move turnLeft REPEAT R=3 r( putMarker r) m)", KAREL), KAREL)
    assert nodes.tolist() == [0, 16, 0, 17, 4, 67, 20]


@pytest.mark.parametrize(
    "program",
    [Program(()), Program((Repeat(2, ()),)), Program((Action("fly"),))],
    ids=["empty", "empty body", "unknown"],
)
def test_programs_that_cannot_be_encoded_are_refused(program: Program) -> None:
    with pytest.raises(InvalidArgument):
        flatten(program, KAREL)


def tokens(program: Program) -> int:
    return len(to_text(program).split())


def test_random_programs_have_the_stated_distribution() -> None:
    programs = random_programs(KAREL_GRAMMAR, 0, 9_000)
    lengths = np.array([tokens(program) for program in programs])
    texts = [to_text(program) for program in programs[:3_000]]
    assert lengths.mean() == pytest.approx(17.0, abs=0.5) and np.median(lengths) == pytest.approx(12, abs=1)
    assert (lengths == 5).mean() == pytest.approx(0.32, abs=0.02)
    assert len(set(texts)) / 3_000 == pytest.approx(0.55, abs=0.025)
    assert lengths.max() <= 45


@pytest.mark.parametrize(
    "text",
    [
        "DEF run m( WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w) m)",
        "DEF run m( WHILE c( noMarkersPresent c) w( turnRight move move w) pickMarker"
        " WHILE c( noMarkersPresent c) w( move move turnLeft w) putMarker m)",
    ],
)
def test_neighbours_have_the_stated_distribution(text: str) -> None:
    drawn = [to_text(program) for program in neighbours(parse(text, KAREL), KAREL_GRAMMAR, 5, 4_000)]
    assert 0.055 <= drawn.count(text) / 4_000 <= 0.095
    assert 0.52 <= np.mean([len(set(drawn[i : i + 1_000])) / 1_000 for i in range(0, 4_000, 1_000)]) <= 0.61


def height(statements) -> int:  # type: ignore[no-untyped-def]
    blocks = [getattr(s, name) for s in statements for name in ("body", "orelse") if hasattr(s, name)]
    return 1 + max((height(block) for block in blocks), default=0)


def longest_block(statements) -> int:  # type: ignore[no-untyped-def]
    blocks = [getattr(s, name) for s in statements for name in ("body", "orelse") if hasattr(s, name)]
    return max([len(statements), *(longest_block(block) for block in blocks)])


def test_draws_keep_the_limits_even_from_a_start_beyond_them() -> None:
    large = parse("DEF run m( " + "move " * 9 + "REPEAT R=4 r( " * 6 + "move turnLeft " * 20 + "r) " * 6 + "m)", KAREL)
    drawn = [*random_programs(KAREL_GRAMMAR, 1, 3_000), *neighbours(large, KAREL_GRAMMAR, 1, 200)]
    for parent in random_programs(KAREL_GRAMMAR, 2, 60):
        drawn += neighbours(parent, KAREL_GRAMMAR, 2, 50)
    assert max(tokens(program) for program in drawn) <= 45
    assert max(height(program.body) for program in drawn) == 4
    assert max(longest_block(program.body) for program in drawn) == 6


def test_draws_depend_on_seed_and_number_only() -> None:
    whole = random_programs(KAREL_GRAMMAR, 4, 20)
    assert random_programs(KAREL_GRAMMAR, 4, 5, first=15) == whole[15:]
    assert random_programs(KAREL_GRAMMAR, 5, 20) != whole
