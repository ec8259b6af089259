from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.programs.engine.grammar import KAREL_GRAMMAR
from dressage.programs.engine.trees import Nodes, flatten, unflatten
from dressage.programs.karel.machine import KarelScorer
from dressage.programs.karel.tasks import class_of
from dressage.programs.karel.worlds import Worlds
from dressage.programs.search.algorithms import new_search
from dressage.programs.search.beam import BeamSearch
from dressage.programs.search.best import Improvement
from dressage.programs.search.climbing import Search
from dressage.programs.search.draws import neighbours, random_programs
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import Algorithm, Beam, Schedule, SearchSettings
from dressage.programs.syntax import KAREL, Program, parse, to_text

SETTINGS = SearchSettings(budget=4_000, seed=3, target=2.0)
History = list[tuple[int, float, str]]


def worlds(task: str = "DoorKey") -> Worlds:
    return Worlds.of(class_of(task), range(32))


def row(match: Improvement) -> tuple[int, float, str]:
    return match.programs, match.score, to_text(unflatten(match.nodes, KAREL))


def searched(
    settings: SearchSettings,
    task: str = "DoorKey",
    threads: int = 1,
    stops: tuple[int, ...] = (),
    starts: list[Nodes] | None = None,
) -> tuple[History, dict[str, object]]:
    """Search with a new search, from the saved state, after each stop."""
    history: History = []
    state: str | None = None
    search = None
    for stop in (*stops, settings.budget):
        with Scorers(lambda: KarelScorer(worlds(task)), threads) as scorers:
            search = new_search(scorers, settings, starts or [], lambda match: history.append(row(match)))
            if state is not None:
                search.restore(json.loads(state))
            search.run(stop)
            state = json.dumps(search.state())
    assert search is not None and state is not None
    return history, json.loads(state)


def plain_search(settings: SearchSettings, task: str) -> History:
    """The same search without cache, bounds, chunks or threads."""
    scorer = KarelScorer(worlds(task))
    history: History = []
    n, best = 0, -np.inf
    while n < settings.budget:
        k = settings.climb_neighbours(n)
        climb = random_programs(KAREL_GRAMMAR, settings.seed, 1, first=n)[0]
        score, n = scorer.score(flatten(climb, KAREL))[0], n + 1
        if score > best:
            best = score
            history.append((n, score, to_text(climb)))
        tried = 0
        while tried < k and n < settings.budget:
            candidate = neighbours(climb, KAREL_GRAMMAR, settings.seed, 1, first=n)[0]
            value, n, tried = scorer.score(flatten(candidate, KAREL))[0], n + 1, tried + 1
            if value > score:
                climb, score, tried = candidate, value, 0
                if value > best:
                    best = value
                    history.append((n, value, to_text(candidate)))
    return history


@pytest.mark.parametrize("task", ["StairClimber", "DoorKey", "Harvester", "Seeder", "TopOff"])
def test_cache_and_early_ends_do_not_change_the_search(task: str) -> None:
    history, _ = searched(SETTINGS, task)
    assert history == plain_search(SETTINGS, task) and len(history) >= 3


@pytest.mark.parametrize("algorithm", ["random", "hc", "scheduled-hc", "cebs"])
def test_the_search_does_not_depend_on_threads(algorithm: Algorithm) -> None:
    settings = replace(SETTINGS, algorithm=algorithm, budget=20_000)
    assert searched(settings, threads=1) == searched(settings, threads=2) == searched(settings, threads=3)


@pytest.mark.parametrize("algorithm", ["random", "hc", "scheduled-hc", "cebs"])
def test_a_search_resumed_at_any_boundary_ends_the_same(algorithm: Algorithm) -> None:
    settings = replace(SETTINGS, algorithm=algorithm)
    whole = searched(settings)
    assert searched(settings, stops=(1, 2, 33, 34, 700, 701, 1_999)) == whole
    assert searched(settings, threads=2, stops=(1_000,)) == whole


def plain_beam(settings: SearchSettings, task: str) -> History:
    """A beam search without cache, bounds, chunks or threads."""
    scorer = KarelScorer(worlds(task))
    history: History = []
    n, best = 0, -np.inf

    def scored(program: Program) -> float:
        nonlocal n, best
        score, n = scorer.score(flatten(program, KAREL))[0], n + 1
        if score > best:
            best = score
            history.append((n, score, to_text(program)))
        return score

    while n < settings.budget:
        parents, mean, rising = random_programs(KAREL_GRAMMAR, settings.seed, 1, first=n), -np.inf, True
        scored(parents[0])
        while rising:
            each, more = divmod(settings.beam.candidates, len(parents))
            drawn: dict[Program, float] = {}
            for place, parent in enumerate(parents):
                for _ in range(each + (place < more)):
                    if n == settings.budget:
                        return history
                    candidate = neighbours(parent, KAREL_GRAMMAR, settings.seed, 1, first=n)[0]
                    drawn.setdefault(candidate, scored(candidate))
            parents = sorted(drawn, key=lambda program: -drawn[program])[: settings.beam.elites]
            new_mean = float(np.mean([drawn[program] for program in parents]))
            mean, rising = new_mean, new_mean > mean
    return history


@pytest.mark.parametrize("task", ["StairClimber", "DoorKey", "Harvester"])
def test_a_beam_search_is_the_plain_one(task: str) -> None:
    settings = replace(SETTINGS, algorithm="cebs", budget=3_000, beam=Beam(50, 8))
    history, state = searched(settings, task)
    assert history == plain_beam(settings, task) and len(history) >= 3 and int(str(state["begun"])) > 1


def nodes(*bodies: str) -> list[Nodes]:
    return [flatten(parse(f"DEF run m( {body} m)", KAREL), KAREL) for body in bodies]


def test_given_starts_are_scored_once_and_climbed_best_first_over_again() -> None:
    starts = nodes("move", "WHILE c( noMarkersPresent c) w( turnRight move move w) pickMarker", "turnLeft")
    settings = replace(SETTINGS, algorithm="hc", neighbours=5, budget=600)
    with Scorers(lambda: KarelScorer(worlds())) as scorers:
        search = Search(scorers, settings, starts)
        search.run(3)
        scores = [scorers.score(start)[0] for start in starts]
        assert search.programs == 3 and search.climbs == 0 and search.best is not None
        assert search.best.score == max(scores) and search.best.programs == 2
        ranked = sorted(range(3), key=lambda i: -scores[i])
        climbed: list[tuple[int, int]] = []
        while search.climbs < 7:
            search.run(search.programs + 1)
            climb = search.state()["climb"]
            if climb is not None and climb["tried"] == 1 and climb["nodes"] in [start.tolist() for start in starts]:
                climbed.append((search.climbs, [start.tolist() for start in starts].index(climb["nodes"])))
        # A climb whose first neighbour is better is not seen at its start; none is from another start than its turn's.
        assert all(start == ranked[(number - 1) % 3] for number, start in climbed)
        assert {start for _, start in climbed} == {0, 1, 2} and climbed[-1][0] > 3
    assert searched(settings, starts=starts) == searched(settings, starts=starts, threads=2, stops=(2, 50))


def test_a_beam_search_begins_at_the_best_starts() -> None:
    starts = nodes("move", "WHILE c( noMarkersPresent c) w( turnRight move move w) pickMarker", "turnLeft")
    settings = replace(SETTINGS, algorithm="cebs", budget=400, beam=Beam(20, 2))
    with Scorers(lambda: KarelScorer(worlds())) as scorers:
        search = BeamSearch(scorers, settings, starts)
        search.run(4)
        scores = [scorers.score(start)[0] for start in starts]
        generation = search.state()["generation"]
    assert [row["score"] for row in generation["parents"]] == sorted(scores)[:0:-1] and generation["drawn"] == 1
    assert searched(settings, starts=starts) == searched(settings, starts=starts, threads=2, stops=(2, 50))


def test_a_start_that_reaches_the_target_ends_the_search() -> None:
    solver = "WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w)"
    with Scorers(lambda: KarelScorer(worlds("StairClimber"))) as scorers:
        search = Search(scorers, SearchSettings(), nodes("move", solver, "turnLeft"))
        search.run()
    assert search.solved and search.finished and search.programs == 2


def test_the_budget_is_exact_and_the_search_stops_when_solved() -> None:
    _, state = searched(replace(SETTINGS, budget=777))
    assert state["programs"] == 777
    history, state = searched(replace(SETTINGS, target=1.0, budget=200_000), task="StairClimber")
    assert history[-1][1] == 1.0 and state["programs"] == history[-1][0] < 200_000


def test_schedules_run_from_start_to_end() -> None:
    for ratio in ("log", "linear"):
        for shape in ("sin", "linear"):
            for interpolation in ("log", "linear"):
                schedule = Schedule(ratio=ratio, shape=shape, interpolation=interpolation)  # type: ignore[arg-type]
                drawn = [schedule.neighbours(n) for n in (0, 10, 1_000, 500_000, 10**6, 10**7)]
                assert drawn == sorted(drawn) and (drawn[0], drawn[-1]) == (32, 2048)
    assert Schedule(ratio="linear", shape="linear", interpolation="linear").neighbours(500_000) == 1040
    assert Schedule(ratio="linear", shape="linear").neighbours(500_000) == 256


@pytest.mark.parametrize(
    "bad", [{"algorithm": "magic"}, {"budget": 0}, {"neighbours": 0}, {"seed": -1}], ids=lambda bad: next(iter(bad))
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        SearchSettings(**bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        Schedule(start=0)
