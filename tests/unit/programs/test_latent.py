from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.programs.engine.grammar import KAREL_GRAMMAR, MINIGRID_GRAMMAR, Grammar
from dressage.programs.engine.trees import Nodes, flatten, unflatten
from dressage.programs.karel.machine import KarelScorer
from dressage.programs.karel.tasks import class_of
from dressage.programs.karel.worlds import Worlds
from dressage.programs.latent.autoencoder import load_autoencoder
from dressage.programs.latent.decoding import Choices, places_of, vocabulary
from dressage.programs.search.algorithms import new_search
from dressage.programs.search.draws import random_programs
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import Latent, SearchSettings
from dressage.programs.syntax import KAREL, measure, parse, to_text

SETTINGS = SearchSettings(algorithm="latent-cem", budget=700, seed=5, target=2.0, latent=Latent(32, 3, 0.5))


def drawn(count: int, seed: int = 9) -> list[Nodes]:
    return [flatten(program, KAREL) for program in random_programs(KAREL_GRAMMAR, seed, count)]


@pytest.mark.parametrize("grammar", [KAREL_GRAMMAR, MINIGRID_GRAMMAR], ids=lambda grammar: grammar.language.name)
def test_any_scores_give_programs_within_the_limits(grammar: Grammar) -> None:
    rng = np.random.default_rng(0)
    size = len(vocabulary(grammar))
    for favoured in (None, 0, 1, 3, 4):  # sequences, loops and branches as often as they may occur
        choices = Choices(grammar, 50)
        while choices.open:
            scores = rng.normal(size=(50, size)).astype(np.float32)
            if favoured is not None:
                scores[:, favoured] += 5
            choices.take(scores)
        for nodes in choices.programs():
            program = unflatten(nodes, grammar.language)
            text = to_text(program)
            assert parse(text, grammar.language) == program
            size_of = measure(program)
            assert size_of.tokens <= grammar.max_tokens and size_of.height <= grammar.max_height
            assert size_of.longest_block <= grammar.max_statements


def test_scores_of_a_program_give_the_program() -> None:
    programs = drawn(200)
    known = vocabulary(KAREL_GRAMMAR)
    choices = Choices(KAREL_GRAMMAR, len(programs))
    step = 0
    while choices.open:
        scores = np.zeros((len(programs), len(known)), np.float32)
        for row, nodes in zip(scores, programs, strict=True):
            row[np.searchsorted(known, nodes[min(step, len(nodes) - 1)])] = 1
        choices.take(scores)
        step += 1
    assert all(np.array_equal(a, b) for a, b in zip(choices.programs(), programs, strict=True))


def test_the_places_of_nodes_are_those_of_the_decoder() -> None:
    programs = drawn(20)
    nodes = np.zeros((20, 48), np.int32)
    for row, program in zip(nodes, programs, strict=True):
        row[: len(program)] = program
    sizes = np.array([len(program) for program in programs])
    places = places_of(nodes, sizes, KAREL_GRAMMAR)
    choices = Choices(KAREL_GRAMMAR, 20)
    known = vocabulary(KAREL_GRAMMAR)
    for i in range(48):
        assert np.array_equal(choices.places, places[:, i])
        scores = np.zeros((20, len(known)), np.float32)
        scores[np.arange(20), np.minimum(np.searchsorted(known, nodes[:, i]), len(known) - 1)] = 1
        choices.take(scores)


def test_the_autoencoder_of_the_package_reconstructs_programs() -> None:
    model = load_autoencoder()
    programs = list({nodes.tobytes(): nodes for nodes in drawn(600, seed=77)}.values())
    decoded = model.decode(model.encode(programs))
    equal = np.mean([np.array_equal(a, b) for a, b in zip(programs, decoded, strict=True)])
    assert len(programs) > 200 and equal > 0.45
    with pytest.raises(InvalidArgument, match="latent space lacks"):
        model.encode(
            [flatten(parse("DEF run m( IF c( and c( leftIsClear c) c( rightIsClear c) c) i( move i) m)", KAREL), KAREL)]
        )
    with pytest.raises(InvalidArgument, match="language"):
        load_autoencoder("minigrid")


def stair_climber() -> KarelScorer:
    return KarelScorer(Worlds.of(class_of("StairClimber"), range(32)))


def searched(settings: SearchSettings, threads: int = 1, stops: tuple[int, ...] = ()) -> tuple[object, ...]:
    history, state = [], None
    for stop in (*stops, settings.budget):
        with Scorers(stair_climber, threads) as scorers:
            search = new_search(
                scorers, settings, (), lambda match: history.append((match.programs, match.score, match.nodes.tolist()))
            )
            if state is not None:
                search.restore(json.loads(state))
            search.run(stop)
            assert search.programs == stop
            state = json.dumps(search.state())
    return history, json.loads(str(state))


@pytest.mark.parametrize("algorithm", ["latent-cem", "latent-cebs"])
def test_a_latent_search_is_the_same_resumed_and_on_more_threads(algorithm: str) -> None:
    settings = replace(SETTINGS, algorithm=algorithm)  # type: ignore[arg-type]
    whole = searched(settings)
    assert len(whole[0]) >= 2 and whole[1]["begun"] >= 1  # type: ignore[arg-type, index]
    assert searched(settings, stops=(1, 33, 100, 101)) == whole == searched(settings, threads=2, stops=(64,))


def test_starts_are_scored_and_those_in_the_space_are_centres() -> None:
    compound = "DEF run m( IF c( and c( leftIsClear c) c( rightIsClear c) c) i( move i) m)"
    starts = [flatten(parse(text, KAREL), KAREL) for text in (compound, "DEF run m( turnLeft move m)")]
    with Scorers(stair_climber, 1) as scorers:
        search = new_search(scorers, replace(SETTINGS, budget=40), starts)
        search.run(3)
        centres = search.state()["generation"]["centres"]
        search.run()
    assert search.programs == 40
    assert np.array_equal(np.array(centres, np.float32), load_autoencoder().encode(starts[1:]))


def test_a_generation_continues_only_while_its_best_improve() -> None:
    class Space:
        """One number whose sign and size choose between three programs."""

        size = 1
        good, fair, bad = (
            flatten(parse(f"DEF run m( {body} m)", KAREL), KAREL) for body in ("move", "turnLeft", "putMarker")
        )

        def encode(self, programs: list[Nodes]) -> np.ndarray:
            return np.zeros((len(programs), 1), np.float32)

        def decode(self, latent: np.ndarray) -> list[Nodes]:
            return [self.good if z > 2 else self.fair if z > 0 else self.bad for z in latent[:, 0]]

    class Fixed:
        """Scores those three programs."""

        variations, counts = 1, np.zeros(4, np.int64)

        def score_all(self, programs: list[Nodes]) -> tuple[np.ndarray, np.ndarray]:
            value = {Space.good.tobytes(): 1.0, Space.fair.tobytes(): 0.5, Space.bad.tobytes(): 0.0}
            scores = np.array([value[nodes.tobytes()] for nodes in programs])
            return scores, scores[:, None]

    settings = replace(SETTINGS, budget=5_000, target=1.0, latent=Latent(20, 4, 0.7))
    with Scorers(Fixed, 1) as scorers:  # type: ignore[arg-type]
        search = new_search(scorers, settings, (), None, Space())  # type: ignore[arg-type]
        search.run()
        assert search.solved and search.best is not None and search.best.programs == search.programs
        states = []
        search = new_search(scorers, replace(settings, target=2.0, budget=400), (), None, Space())  # type: ignore[arg-type]
        while not search.finished:
            search.run(search.programs + 20)
            states.append(search.state())
    means = [(state["begun"], (state["generation"] or {"mean": None})["mean"]) for state in states]
    for (begun, mean), (later, new) in itertools.pairwise(means):
        assert begun != later or mean is None or new is None or new > mean
    assert states[-1]["begun"] > 2
