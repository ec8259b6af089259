from __future__ import annotations

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.programs.engine.playing import Episode
from dressage.programs.engine.trees import flatten
from dressage.programs.families import program_task
from dressage.programs.karel.family import KAREL_FAMILY
from dressage.programs.karel.layouts import layout
from dressage.programs.karel.machine import KarelScorer, play
from dressage.programs.karel.tasks import class_of, task_class
from dressage.programs.karel.worlds import Worlds
from dressage.programs.syntax import KAREL, parse


def episode(body: str, task: str = "FourCorners", seed: int = 0) -> Episode:
    return play(parse(f"DEF run m( {body} m)", KAREL), Worlds.of(task_class(task), [seed]))[0]


def test_and_or_stop_at_the_first_side_that_decides() -> None:
    # The agent stands in the bottom row and faces east: the front is clear, there is no marker.
    decided = [
        ("and c( markersPresent c) c( frontIsClear c)", 1, False),
        ("and c( frontIsClear c) c( noMarkersPresent c)", 2, True),
        ("or c( frontIsClear c) c( markersPresent c)", 1, True),
        ("or c( markersPresent c) c( rightIsClear c)", 2, False),
        ("not c( and c( frontIsClear c) c( or c( markersPresent c) c( frontIsClear c) c) c)", 3, False),
        ("or c( and c( True c) c( markersPresent c) c) c( not c( not c( frontIsClear c) c) c)", 2, True),
        ("True", 0, True),
        ("False", 0, False),
    ]
    for condition, perceptions, outcome in decided:
        result = episode(f"IFELSE c( {condition} c) i( turnLeft i) ELSE e( turnRight e)")
        assert (result.calls - result.steps, result.agent[2]) == (perceptions, 0 if outcome else 2), condition
        looped = episode(f"WHILE c( {condition} c) w( turnLeft move turnRight w)")
        assert (looped.steps > 0) == outcome, condition


def test_a_loop_that_neither_perceives_nor_acts_is_bounded() -> None:
    body = "REPEAT R=9999 r( REPEAT R=9999 r( REPEAT R=0 r( move r) r) r)"
    result = episode(body)
    assert result.exhausted and result.crashed and result.calls == 0


def test_while_true_ends_at_a_repeated_state() -> None:
    result = episode("WHILE c( True c) w( turnLeft w)")
    assert result.crashed and not result.exhausted and result.steps == 4


def test_the_call_after_the_limit_is_scored_but_does_not_move() -> None:
    result = episode("REPEAT R=10000 r( turnLeft r) move move")
    assert result.crashed and result.steps == 10_001
    assert result.agent == (10, 6, 3), "turned by 180 degrees at the same cell"


def test_play_and_score_agree_on_random_programs() -> None:
    from dressage.programs.engine.grammar import KAREL_GRAMMAR
    from dressage.programs.search.draws import random_programs

    programs = random_programs(KAREL_GRAMMAR, 7, 40)
    for name in KAREL_FAMILY.tasks:
        worlds = Worlds.of(class_of(name), range(8))
        _, returns = KarelScorer(worlds).score_all([flatten(program, KAREL) for program in programs])
        expected = [[result.reward for result in play(program, worlds)] for program in programs]
        assert returns.tolist() == expected, name


def test_scoring_leaves_the_worlds_as_they_were() -> None:
    worlds = Worlds.of(task_class("OneStroke"), range(4))
    nodes = flatten(parse("DEF run m( REPEAT R=19 r( move putMarker turnLeft move r) m)", KAREL), KAREL)
    scorer = KarelScorer(worlds)
    first = scorer.score(nodes)[1]
    assert np.array_equal(scorer.score(nodes)[1], first)


def test_the_corrected_profile_starts_inside_and_reports_on_other_seeds() -> None:
    quirky, corrected = program_task("karel/WallAvoider", "llmgs-v1"), program_task("karel/WallAvoider")
    inside = [layout(class_of("WallAvoider"), seed, "corrected") for seed in range(200)]
    assert not any(state.walls[state.agent] for state in inside)
    outside = [layout(class_of("WallAvoider"), seed) for seed in range(32)]
    assert sum(bool(state.walls[state.agent]) for state in outside) == 15
    assert quirky.search_states(32) == quirky.report_states(32)
    assert not set(corrected.search_states(32)) & set(corrected.report_states(32))
    assert corrected.threshold(1.0) < 1.0 == quirky.threshold(1.0)


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="unknown Karel task class"):
        task_class("Chess")
