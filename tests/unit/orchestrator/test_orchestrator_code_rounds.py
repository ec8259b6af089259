"""The rounds of the code method: order, duplicates, edits, history, the final choice and the settings."""

from __future__ import annotations

import math

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage_orchestrator.lifecycle.report import CONFIRMATION_SEED
from dressage_orchestrator.methods.code import candidates as logic
from dressage_orchestrator.methods.code import evaluating
from dressage_orchestrator.methods.code import spec as settings
from dressage_orchestrator.methods.code.authoring import trials
from dressage_orchestrator.methods.code.candidates import Candidate
from dressage_orchestrator.methods.code.method import CodeMethod
from dressage_orchestrator.methods.code.selecting import Contender, choose
from hypothesis import given
from hypothesis import strategies as st

SOURCES = st.sampled_from(["a = 1\n", "b = 2\n", "c = 3\n", "class Policy:\n    pass\n"])
RETURNS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=4).map(tuple)
FAILED = st.builds(lambda source: Candidate(source, "model").with_failure("POLICY_RAISED", "no"), SOURCES)
WAITING = st.builds(Candidate, SOURCES, st.just("model"))
PLAYED = st.builds(lambda source, returns: Candidate(source, "model", returns=returns), SOURCES, RETURNS)
ANY = st.lists(st.one_of(FAILED, WAITING, PLAYED), max_size=8)


@given(ANY)
def test_the_best_is_the_first_with_the_highest_mean(entries: list[Candidate]) -> None:
    chosen = logic.best_of(entries)
    scores = [entry.score for entry in entries]
    if chosen is None:
        assert all(score == -math.inf for score in scores)
    else:
        assert chosen == scores.index(max(scores)) and entries[chosen].failure is None


@given(ANY)
def test_candidates_survive_as_the_result_of_a_step(entries: list[Candidate]) -> None:
    assert logic.from_json(logic.as_json(entries)) == entries


@given(st.lists(WAITING, min_size=1, max_size=8), st.booleans())
def test_equal_sources_are_played_once(entries: list[Candidate], fails: bool) -> None:
    sources = logic.unplayed_sources(entries)
    assert len(sources) == len({entry.source for entry in entries})
    results = {source: v1.CandidateResult(returns=[float(len(source))]) for source in sources}
    if fails:
        results[sources[0]].failure.reason = "POLICY_RAISED"
    after = evaluating._with_results(entries, results)
    assert not any(entry.playable for entry in after)
    assert sum(not entry.duplicate for entry in after) == len(sources)
    by_source = {entry.source: entry.score for entry in after}
    assert all(entry.score == by_source[entry.source] for entry in after)


@given(st.lists(SOURCES, min_size=1, max_size=5))
def test_an_unchanged_text_edits_nothing(sources: list[str]) -> None:
    entries = [Candidate(source, "model") for source in sources]
    assert logic.with_edits(entries, logic.as_text(sources)) == entries


def test_an_edit_replaces_its_candidate_only() -> None:
    entries = [Candidate(f"{name} = 1\n", "model") for name in "abc"]
    text = logic.as_text([entry.source for entry in entries]).replace("b = 1", "b = 2")
    edited = logic.with_edits(entries, text)
    assert [entry.author for entry in edited] == ["model", "user", "model"] and edited[1].source == "b = 2\n"
    assert [entry.source for entry in logic.with_edits(entries, "d = 1\n")] == ["d = 1\n", "b = 1\n", "c = 1\n"]


def test_returns_that_are_no_numbers_are_a_failure() -> None:
    result = v1.CandidateResult(returns=[1.0, math.nan])
    failed = evaluating.with_result(Candidate("a", "model"), result)
    assert failed.failure is not None and failed.failure.reason == "NO_FINITE_RETURN" and failed.score == -math.inf


def row(number: int, *returns: float | None, chosen: int) -> v1.Iteration:
    entry = v1.Iteration(number=number, code=v1.CodeProposal(chosen=chosen))
    for place, value in enumerate(returns, start=1):
        candidate = entry.code.candidates.add(source=f"# {number}.{place}\n")
        if value is None:
            candidate.failure.reason, candidate.failure.message = "POLICY_RAISED", "no"
        else:
            candidate.mean_return, candidate.returns[:] = value, [value]
    if chosen:
        entry.score = max(value for value in returns if value is not None)
    return entry


def test_history_shows_losers_only_outside_of_the_paper() -> None:
    rounds = [row(1, 1.0, 5.0, None, chosen=2), row(2, None, None, chosen=0)]
    shown = trials(rounds, show_losers=True)
    assert [(entry.round, bool(entry.source), entry.best_of_round) for entry in shown] == [
        *((1, False, False), (1, True, True), (1, False, False)),
        *((2, True, False), (2, False, False)),  # of a failed round the first source
    ]
    assert shown[2].failure == "POLICY_RAISED: no" and list(shown[0].returns) == [1.0]
    assert [entry.source for entry in trials(rounds, show_losers=False)] == ["# 1.2\n", "# 2.1\n"]


def test_history_has_a_bound() -> None:
    rounds = [row(number, float(-number), chosen=1) for number in range(1, 400)]
    shown = trials(rounds, show_losers=True)
    assert len(shown) == 300
    assert [entry.round for entry in shown if entry.source] == [394, 395, 396, 397, 398, 399]
    assert {entry.round for entry in trials(rounds[:20], show_losers=True) if entry.source} == {
        *range(1, 7),
        *range(15, 21),
    }


def test_the_final_choice_depends_on_the_profile() -> None:
    winners = [Contender(1, "a", 3.0), Contender(2, "b", 9.0), Contender(3, "a", 5.0)]
    assert choose(winners, [], deliver_last=False) == [Contender(2, "b", 9.0), Contender(3, "a", 5.0)]
    assert choose(winners, [], deliver_last=True) == [winners[2]]
    assert choose(winners, [1], deliver_last=False) == [winners[0]]
    assert choose([], [], deliver_last=False) == []


def filled(**fields: object) -> v1.SessionSpec:
    code = v1.CodeSpec(**fields.pop("code", {}))  # type: ignore[arg-type]
    spec = v1.SessionSpec(
        **{"intent": "x", "environment": "environments/CartPole-v1", "model": "m", **fields},  # type: ignore[arg-type]
        code=code,
    )
    CodeMethod().fill(spec)
    return spec


def test_the_profiles_defaults() -> None:
    corrected, paper = filled().code, filled(code={"profile": "promptpo-paper"}).code
    assert (corrected.candidates, corrected.episodes, corrected.repairs, corrected.rotate_seeds) == (10, 5, 3, True)
    assert (paper.candidates, paper.episodes, paper.repairs, paper.rotate_seeds) == (10, 5, 10, False)
    assert filled().max_iterations == 10 and filled().code.target == load_card("CartPole-v1").target
    kept = filled(code={"profile": "promptpo-paper", "repairs": 0, "feedback": False})
    assert kept.code.HasField("repairs") and kept.code.repairs == 0 and not kept.code.feedback


@given(number=st.integers(1, 50), other=st.integers(1, 50), seed=st.integers(0, 100_000))
def test_seeds_of_rounds_are_disjoint(number: int, other: int, seed: int) -> None:
    spec = filled(seed=seed)
    first, second = set(evaluating.seeds_of(spec, number)), set(evaluating.seeds_of(spec, other))
    assert number == other or not first & second
    assert not first & set(settings.selection_seeds()) and max(settings.selection_seeds()) < CONFIRMATION_SEED
    fixed = filled(seed=seed, code={"profile": "promptpo-paper"})
    assert evaluating.seeds_of(fixed, number) == evaluating.seeds_of(fixed, other)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("spec.model", {"model": "template/v1"}),
        ("spec.seed", {"seed": 999_990}),
        ("spec.budget.env_steps", {"budget": v1.Budget(env_steps=10)}),
        ("spec.code.target", {"environment": "environments/Walker2d-v5"}),
        ("spec.code.policy_source", {"code": {"policy_source": "  \n"}}),
    ],
)
def test_bad_settings_name_their_field(field: str, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        CodeMethod().validate(filled(**fields))
    assert refused.value.field == field


def test_a_policy_of_ones_own_is_one_round_without_calls() -> None:
    spec = filled(model="template/v1", code={"policy_source": "class Policy: ..."}, max_iterations=7)
    CodeMethod().validate(spec)
    assert spec.max_iterations == 1 and not spec.code.feedback and not spec.code.reflection
    assert CodeMethod().estimate(spec, episode_steps=500).model_calls == 0
