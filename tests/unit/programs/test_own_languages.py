"""Plug-ins of languages in this process: their description, both paths of the example, and what is wrong with broken ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.envs import custom
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.programs.engine.grammar import KAREL_GRAMMAR
from dressage.programs.engine.trees import flatten, unflatten
from dressage.programs.family import CompiledFamily
from dressage.programs.languages import checking, live
from dressage.programs.languages.description import Code, Description, description_of
from dressage.programs.languages.grammars import acceptance, check_grammar
from dressage.programs.languages.loading import digest_of, load_plugin
from dressage.programs.languages.plugin import Plugin, Productions
from dressage.programs.languages.stepped import DrawingScorer
from dressage.programs.search.climbing import Search
from dressage.programs.search.draws import neighbours, random_programs
from dressage.programs.search.parallel import Scorer, Scorers
from dressage.programs.search.settings import SearchSettings
from dressage.programs.syntax import Action, Program, to_text

EXAMPLES = Path(__file__).parents[3] / "examples" / "languages"
sys.path.append(str(EXAMPLES))

from vacuum import PLUGIN
from vacuum.rooms import VacuumRoom

CODE = Code("vacuum", version=digest_of(EXAMPLES / "vacuum"))
STEPPED = replace(PLUGIN, compiled=None)
ROOM, STATES = "CleanRoom", tuple(range(8))


def described(plugin: Plugin) -> Description:
    return description_of(plugin, CODE)


def compiled() -> CompiledFamily:
    return live.compiled_family(PLUGIN, described(PLUGIN))


def stepped(plugin: Plugin = STEPPED) -> live.SteppedFamily:
    return live.SteppedFamily(described(plugin), plugin)


def searched(
    make: Callable[[], Scorer], budget: int, *, threads: int = 1, stops: tuple[int, ...] = ()
) -> list[tuple[int, float, str]]:
    """Search, from the saved state after each stop."""
    settings, history, state = SearchSettings(budget=budget, seed=5, target=2.0), list[Any](), None
    language = described(PLUGIN).language
    for stop in (*stops, budget):
        with Scorers(make, threads) as scorers:
            search = Search(
                scorers,
                settings,
                on_improvement=lambda one: history.append(
                    (one.programs, one.score, to_text(unflatten(one.nodes, language)))
                ),
            )
            if state is not None:
                search.restore(json.loads(state))
            search.run(stop)
            state = json.dumps(search.state())
    return history


def test_a_description_is_data_that_is_read_back_whole() -> None:
    description = described(PLUGIN)
    values = json.loads(json.dumps(description.to_dict()))
    assert Description.from_dict(values) == description
    assert description.engine == "compiled" and description.note == ""
    assert "stepped in Python" in described(STEPPED).note


@pytest.mark.parametrize("task", PLUGIN.tasks)
def test_rules_and_environment_agree_on_random_programs(task: str) -> None:
    family = compiled()
    checking.check_steps(family, task)
    checking.compare(family, stepped(), task, random_programs(family.grammar, 9, 150))


def test_the_slow_path_finds_the_same_programs_as_the_engine() -> None:
    fast = searched(lambda: compiled().scorer(ROOM, "corrected", STATES), 400)
    slow = searched(lambda: stepped().scorer(ROOM, "corrected", STATES), 400)
    assert [(number, text) for number, _, text in slow] == [(number, text) for number, _, text in fast]
    assert [score for _, score, _ in slow] == pytest.approx([score for _, score, _ in fast])
    assert len(fast) >= 4
    assert searched(lambda: stepped().scorer(ROOM, "corrected", STATES), 400, stops=(7, 150)) == slow
    assert searched(lambda: stepped().scorer(ROOM, "corrected", STATES), 400, threads=2) == slow


def appended(program: Program, rng: np.random.Generator) -> Program:
    """Append an action, or drop all but the first ones."""
    name = str(rng.choice(["forward", "turnLeft", "turnRight", "suck"]))
    return Program((*program.body[: int(rng.integers(1, 6))], Action(name)))


def test_own_neighbours_are_drawn_the_same_after_a_stop() -> None:
    plugin = replace(PLUGIN, neighbour=appended)
    family = live.live_family(plugin, described(plugin))
    scorers: list[Scorer] = []

    def make() -> Scorer:
        scorers.append(family.scorer(ROOM, "corrected", STATES))
        return scorers[-1]

    whole = searched(make, 300)
    assert isinstance(scorers[0], DrawingScorer) and len(whole) >= 2 and "drawn in Python" in family.note
    assert searched(make, 300, stops=(3, 100)) == whole
    assert whole[-1][2].count("WHILE") <= 1


@pytest.mark.parametrize(
    ("productions", "problem"),
    [
        (Productions(statements={"sequence": 1, "WHILE": 1}), "random programs cannot end"),
        (Productions(statements={"WHILE": 1e6, "action": 1}, max_tokens=5), "hardly ever end within max_tokens 5"),
        (Productions(statements={"sequence": 1, "loop": 1}), r"productions\.statements: unknown name.*'loop'"),
        (Productions(actions={"forward": -1}), r"productions\.actions.*none negative"),
        (Productions(actions={"forward": 0}), r"productions\.actions.*at least one positive"),
        (Productions(tests={"dirtHere": float("nan")}), r"productions\.tests"),
        (Productions(negation=2), r"productions\.negation.*2"),
        (Productions(max_tokens=61), "max_tokens.*61"),
        (Productions(max_height=0), "max_height.*0"),
        (Productions(counts=21), "counts.*21"),
    ],
)
def test_a_grammar_that_cannot_be_drawn_from_is_refused(productions: Productions, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        described(replace(PLUGIN, productions=productions))


@pytest.mark.parametrize("grammar", [KAREL_GRAMMAR, described(PLUGIN).grammar], ids=["karel", "vacuum"])
def test_the_share_of_draws_within_the_tokens_is_exact(grammar: Any) -> None:
    check_grammar(grammar)
    short, long = replace(grammar, max_tokens=15), replace(grammar, max_tokens=60)
    drawn = random_programs(long, 3, 4_000)
    share = sum(len(to_text(program).split()) <= 15 for program in drawn) / 4_000
    expected = acceptance(short) / acceptance(long)
    assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 4_000) ** 0.5)


def test_neighbours_stay_within_the_limits_of_a_wide_grammar() -> None:
    productions = Productions(max_height=8, max_statements=12, max_tokens=60)
    grammar = described(replace(PLUGIN, productions=productions)).grammar
    for program in random_programs(grammar, 2, 50):
        for other in neighbours(program, grammar, 4, 10):
            assert len(to_text(other).split()) <= 60
            assert len(flatten(other, grammar.language)) <= 128


class Broken(VacuumRoom):
    """An environment with one defect."""

    def __init__(self, task: str, **defects: Any) -> None:
        super().__init__(task)
        for name, value in defects.items():
            setattr(self, name, value)


def raising(*_: object, **__: object) -> None:
    raise RuntimeError("the motor is broken")


@pytest.mark.parametrize(
    ("defects", "problem"),
    [
        ({"step": raising}, r"environment\.step: the plug-in raised RuntimeError in line \d+.*the motor is broken"),
        ({"reset": raising}, r"environment\.reset: .*RuntimeError"),
        ({"perceive": lambda test, argument: "yes"}, r"environment\.perceive\('\w+'\).*'yes'"),
        ({"step": lambda action: (0, 1.0)}, r"environment\.step.*expected \(observation, reward"),
        ({"step": lambda action: (0, float("nan"), False, False, {})}, "a finite reward"),
        ({"step": lambda action: (0, 2.0, True, False, {})}, "a return of 2; expected returns of at most 1"),
        ({"step": lambda action: (0, np.random.default_rng().random(), True, False, {})}, "different episodes"),
        ({"loop_state": lambda: []}, r"environment\.loop_state.*unhashable"),
        ({"loop_state": None}, r"environment\('\w+'\)\.loop_state: missing"),
        ({"action_space": 3}, r"environment\('\w+'\)\.action_space.*Discrete\(4\)"),
        ({"view": lambda: "nothing"}, r"environment\.view.*a View"),
    ],
)
def test_a_broken_environment_is_named(defects: dict[str, Any], problem: str) -> None:
    plugin = replace(STEPPED, environment=lambda task: Broken(task, **defects))
    with pytest.raises(InvalidArgument, match=problem):
        checking.check_plugin(plugin, described(plugin), lambda _: None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"compiled": None, "environment": None}, "compiled, environment: neither is given"),
        ({"environment": 3}, "environment.*a function, or None"),
        ({"actions": {"while": "x"}}, "language vacuum: invalid name.*'while'"),
        ({"actions": {f"a{i}": "x" for i in range(17)}}, "actions.*17 entries.*at most 16"),
        ({"arguments": {"dirtHere": ["x"] * 32}}, "arguments"),
        ({"name": "../x"}, "name.*'../x'|language ../x"),
        ({"tasks": {}}, "tasks: there are none"),
        ({"tasks": {"a/b": PLUGIN.tasks[ROOM]}}, "tasks: invalid name.*'a/b'"),
        ({"max_calls": 10**6}, "max_calls.*1000000"),
        ({"world": "x" * 5_000}, "world.*5000 characters"),
        ({"prompt": "$task $key"}, r"prompt.*'key'.*\$world"),
        ({"prompt": "no task"}, "prompt: it has no task"),
        ({"prompt": "$task ${"}, "prompt"),
    ],
)
def test_a_part_of_a_wrong_form_is_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        described(replace(PLUGIN, **change))


def test_wrong_neighbours_and_replies_are_named() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"neighbour": lambda program, rng: None}, "neighbour: invalid value.*a Program"),
        ({"neighbour": lambda program, rng: Program((Action("fly"),))}, "neighbour: no program.*fly"),
        ({"neighbour": lambda program, rng: Program((Action("suck"),) * 99)}, "neighbour.*103 tokens"),
        ({"neighbour": raising}, "neighbour: the plug-in raised RuntimeError"),
        ({"read_reply": lambda text: [1]}, "read_reply.*texts of programs"),
        ({"read_reply": raising}, "read_reply: the plug-in raised RuntimeError"),
    ]
    for change, problem in bad:
        plugin = replace(STEPPED, **change)
        with pytest.raises(InvalidArgument, match=problem):
            checking.check_plugin(plugin, described(plugin), lambda _: None)


def test_code_is_not_loaded_outside_of_a_sandboxed_process(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    marker = tmp_path / "ran"
    (tmp_path / "code" / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(FailedPrecondition, match="only sandboxed processes load it"):
        load_plugin(Code("evil"), tmp_path)
    assert not marker.exists()


def test_names_of_languages_that_no_folder_has_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dressage.programs.families import has_programs

    monkeypatch.setenv(custom.VARIABLE, str(tmp_path))
    for name in ("vacuum/CleanRoom", "../x/y", "languages/x", "vacuum", "/CleanRoom"):
        assert not has_programs(name)
    folder = tmp_path / "languages" / "vacuum"
    folder.mkdir(parents=True)
    (folder / "language.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="language vacuum: .*Register it again"):
        has_programs("vacuum/CleanRoom")
