"""The pure parts of the session loop: configs, lessons, warnings, screening, stages, statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import benchmark_service_pb2 as bench_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.training import sac
from dressage.training.preset import load_preset, preset_names
from dressage_orchestrator import benchmark_table
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.feedback import APPROVE, PROPOSAL, add_direction, take_directions
from dressage_orchestrator.lifecycle import aggregate, budget, lessons
from dressage_orchestrator.methods.reward import configs, diagnostics, screening, tools
from dressage_orchestrator.methods.reward.history import History
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.specs import reward_session


def spec(**more: object) -> v1.SessionSpec:
    base = {"environment": "environments/HalfCheetah-v5", "seeds": 2, "steps_per_member": 100, "max_iterations": 5}
    return reward_session(**{**base, "configs": [v1.Config(id="default")], **more})


def test_variants_lie_on_both_sides_of_the_preset() -> None:
    for environment in ("Pendulum-v1", *preset_names()):
        session_spec = spec(config_variants=True, environment=f"environments/{environment}")
        base, conservative, aggressive = configs.first_configs(session_spec)
        assert base.id == "default" and not base.hyperparameters.ByteSize()
        rate = load_preset(environment).ppo.learning_rate
        low, high = (c.hyperparameters.learning_rate for c in (conservative, aggressive))
        assert (low, high) == pytest.approx((rate / 2, rate * 2))
        assert not conservative.hyperparameters.hidden_sizes  # one shape: they train as one batch


def test_variants_of_sac_have_what_sac_has() -> None:
    session_spec = spec(config_variants=True, environment="environments/Hopper-v5", backend="sb3", algorithm="sac")
    rates = []
    for config in configs.first_configs(session_spec):
        given = {field.name: value for field, value in config.hyperparameters.ListFields()}
        rates.append(sac.complete(given).learning_rate)
    assert rates == pytest.approx([3e-4, 1.5e-4, 6e-4])


def test_the_best_config_is_inherited_and_a_proposal_is_added() -> None:
    session_spec = spec(config_variants=True, tune_hyperparameters=True)
    parent = v1.Iteration(number=1)
    parent.reward.configs.extend(configs.first_configs(session_spec))
    parent.reward.best_config = "aggressive"
    proposed = v1.Hyperparameters(epochs=4)
    variants = configs.next_configs(session_spec, parent, proposed)
    assert [c.id for c in variants] == ["base", "conservative", "aggressive", "proposed"]
    winner = parent.reward.configs[2].hyperparameters
    assert variants[0].hyperparameters == winner
    assert variants[3].hyperparameters.learning_rate == winner.learning_rate and variants[3].hyperparameters.epochs == 4
    assert variants[2].hyperparameters.learning_rate == pytest.approx(2 * winner.learning_rate)


def test_tuning_off_means_off() -> None:
    session_spec = spec(config_variants=True)
    parent = v1.Iteration(number=1)
    parent.reward.configs.extend(configs.first_configs(session_spec))
    parent.reward.best_config = "aggressive"
    assert configs.next_configs(session_spec, parent, v1.Hyperparameters(epochs=4)) == configs.first_configs(
        session_spec
    )
    plain, unknown = spec(), v1.Iteration(reward=v1.RewardProposal(best_config="x"))
    assert configs.next_configs(plain, unknown, v1.Hyperparameters(epochs=4)) == list(plain.reward.configs)


def iteration(number: int, score: float, *, parent: int = 0, lesson: str = "", tier: str = "") -> v1.Iteration:
    iteration = v1.Iteration(name=f"sessions/s/iterations/{number}", number=number, lesson=lesson, lesson_tier=tier)
    iteration.judgment.score = iteration.score = score
    if parent:
        iteration.parent = f"sessions/s/iterations/{parent}"
    return iteration


def test_repeated_lessons_rise_in_tier_and_refuted_ones_are_retired() -> None:
    say = "penalise the pitch rate by a small weight"
    taught = [
        iteration(1, 0.2),
        iteration(2, 0.3, parent=1, lesson=say),
        iteration(3, 0.4, parent=2, lesson="A small weight: penalise the pitch rate"),
    ]
    (held,) = lessons.lessons(taught)
    assert held.tier == pb.Lesson.TIER_STRONG and held.support == (2, 3)
    taught.append(iteration(4, 0.5, parent=3, lesson=say))
    assert lessons.lessons(taught)[0].tier == pb.Lesson.TIER_HARD
    worse = [iteration(1, 0.6), iteration(2, 0.4, parent=1, lesson=say), iteration(3, 0.2, parent=2)]
    assert lessons.lessons(worse)[0].tier == pb.Lesson.TIER_RETIRED and not lessons.in_force(worse)
    firm = [iteration(1, 0.6), iteration(2, 0.4, parent=1, lesson=say, tier="HARD"), iteration(3, 0.2, parent=2)]
    assert lessons.lessons(firm)[0].tier == pb.Lesson.TIER_HARD
    taught[-1].lesson_updates.add(number=2, tier="RETIRED", reason="it was the weight")
    taught[-1].lesson = ""
    assert lessons.lessons(taught)[0].tier == pb.Lesson.TIER_RETIRED


@given(st.integers(0, 60), st.randoms(use_true_random=False))
def test_lessons_are_bounded_and_sorted_by_tier(count: int, random: object) -> None:
    iterations = [
        iteration(
            n + 1, 0.5, lesson=" ".join(f"w{n}x{i}" for i in range(5)), tier=random.choice(["", "HARD", "STRONG"])
        )  # type: ignore[attr-defined]
        for n in range(count)
    ]
    held = lessons.lessons(iterations)
    assert len(held) == min(count, lessons.MAX_HELD)
    assert [entry.tier for entry in held] == sorted(entry.tier for entry in held)


def member(points: list[tuple[int, float, float | None]], **metrics: float) -> v1.Member:
    member = v1.Member(config="default", metrics=metrics)
    for step, own, score in points:
        entry = member.evaluations.add(env_step=step, proposed_returns=[own], returns=[own])
        rollout = entry.rollouts.add(label="median", artifact=f"r{step}")
        if score is not None:
            rollout.judgment.score = score
    return member


def reasons(created: v1.Member) -> list[str]:
    return [entry.reason for entry in diagnostics.diagnose(v1.Iteration(), [created], [])]


def test_reward_hacking_is_a_return_that_rises_while_the_judgment_falls() -> None:
    assert "REWARD_HACKING" in reasons(member([(1, 0, 0.2), (2, 50, 0.8), (3, 100, 0.3)]))
    assert "REWARD_HACKING" not in reasons(member([(1, 0, 0.2), (2, 100, 0.8), (3, 60, 0.3)]))  # both fall: it forgot
    assert "REWARD_HACKING" not in reasons(member([(1, 0, 0.2), (2, 50, 0.5), (3, 100, 0.8)]))
    assert reasons(member([(1, 0, None), (2, 50, None)])) == []


def test_plateau_and_dominating_term() -> None:
    assert reasons(member([(1, 0, None), (2, 99, None), (3, 100, None), (4, 99, None)])) == ["PLATEAU"]
    assert reasons(member([(1, 0, None), (2, 30, None), (3, 60, None), (4, 99, None)])) == []
    shares = {"term_magnitude/speed": 0.95, "term_magnitude/effort": 0.05}
    assert reasons(member([(1, 0, None)], **shares)) == ["REWARD_TERM_DOMINATES"]


def test_a_plateau_is_diagnosed_from_the_best_configs_curve() -> None:
    reported = v1.Condition(type="PLATEAU", message="aggressive-s1: the return changed by 0.1")
    flat = member([(1, 0, None), (2, 99, None), (3, 100, None), (4, 99, None)])
    (iteration,) = diagnostics.diagnose(v1.Iteration(), [flat], [reported])
    assert iteration.reason == "PLATEAU" and "since 2 steps" in iteration.message and not iteration.reported
    # Too few evaluations to say so: the trainer's word stands.
    (iteration,) = diagnostics.diagnose(v1.Iteration(), [member([(1, 0, None), (2, 99, None)])], [reported])
    assert iteration.message == reported.message and iteration.reported


@given(st.lists(st.floats(0, 1), max_size=12))
def test_iterations_without_a_new_best(scores: list[float]) -> None:
    iterations = [iteration(n + 1, score) for n, score in enumerate(scores)]
    expected = len(scores) - 1 - scores.index(max(scores)) if scores else 0
    assert diagnostics.without_best(iterations) == expected


def answer(pairs: list[tuple[float, float]]) -> tuple[judge_pb.ScoreResponse, dict[str, float]]:
    response, scores = judge_pb.ScoreResponse(), {}
    for place, (returned, judged) in enumerate(pairs):
        entry = response.scored.add(rollout=f"r{place}", steps=10, terms={"speed": returned})
        setattr(entry, "return", returned)
        scores[f"r{place}"] = judged
    return response, scores


def test_screening_rejects_only_inverted_orders() -> None:
    judged = [0.1, 0.2, 0.5, 0.7, 0.9]
    for sign, backwards in ((1.0, False), (-1.0, True)):
        matches = screening.scored_pairs(*answer([(sign * score, score) for score in judged]))
        result = screening.screen(matches, rounds=0)
        assert result.agreement == pytest.approx(sign) and result.inverted is backwards
        assert "rank correlation" in screening.screening_failure(matches, result).message
    alike = screening.scored_pairs(*answer([(-score, 0.5) for score in judged]))
    assert not screening.screen(alike, rounds=0).HasField("agreement")
    few = screening.scored_pairs(*answer([(-1.0, 0.1), (1.0, 0.9)]))
    assert not screening.screen(few, rounds=0).inverted


def test_returns_of_short_controls_are_extrapolated_except_after_a_fall() -> None:
    response = judge_pb.ScoreResponse()
    for rollout, steps, terminated, returned in (
        ("a", 100, False, 50.0),
        ("b", 10, False, 10.0),
        ("c", 10, True, 10.0),
    ):
        entry = response.scored.add(rollout=rollout, steps=steps, terminated=terminated)
        setattr(entry, "return", returned)
    result = {
        entry.name: entry.proposed_return for entry in screening.scored_pairs(response, {"a": 1.0, "b": 0.5, "c": 0.2})
    }
    assert result == {"a": 50.0, "b": 100.0, "c": 10.0}


def test_a_label_overrides_the_judges_score_in_screening() -> None:
    trained = member([(1, 0, 0.2)])
    trained.evaluations[0].rollouts[0].judgment.verdicts.add(kind=v1.JUDGE_KIND_HUMAN, score=0.9)
    assert screening.judged_rollouts({1: [trained]}) == {"r1": 0.9}
    unjudged = member([(1, 0, None)])
    unjudged.evaluations[0].rollouts[0].judgment.verdicts.add(kind=v1.JUDGE_KIND_HUMAN, score=0.9)
    assert aggregate.checkpoint_score(unjudged.evaluations[0]) is None


@given(st.integers(1, 9), st.integers(1, 500))
def test_shares_of_a_budget_never_exceed_it(shares: int, tokens: int) -> None:
    session = v1.Session()
    session.spec.budget.tokens, session.spec.budget.dollars = tokens, 1.0
    part = budget.remaining(session, shares=shares)
    assert part.tokens >= 1 and (part.tokens == 1 or part.tokens * shares <= tokens)
    assert math.isclose(part.dollars * shares, 1.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), min_size=1, max_size=90), st.integers(1, 4))
def test_stages_hold_all_cases_and_are_bounded(kinds: list[tuple[str, str]], parallel: int) -> None:
    cases = [bench_pb.BenchmarkCase(environment=e, difficulty=d) for e, d in kinds]
    result = benchmark_table.stages(cases, parallel=parallel)
    assert sorted(set(result)) == list(range(1, max(result) + 1)) and max(result) <= benchmark_table.MAX_STAGES
    sizes = [result.count(stage) for stage in sorted(set(result))]
    assert min(sizes[:-1], default=parallel) >= parallel


def test_a_stage_begins_when_the_score_reaches_the_gate() -> None:
    benchmark = bench_pb.Benchmark(staged=True, stage_gate=0.6)
    first, second = (benchmark.cases.add(stage=stage) for stage in (1, 2))
    source = benchmark_table.StagedCases()
    assert source.ask(benchmark) == [first] and benchmark.stage == 1
    first.state, first.score = v1.SESSION_STATE_EXHAUSTED, 0.5
    assert source.ask(benchmark) == [] and "0.50 is below the gate of 0.6" in benchmark.stopped_reason
    first.score = 0.7
    assert source.ask(benchmark) == [second] and benchmark.stage == 2


def test_a_cancelled_benchmark_continues_no_ended_session() -> None:
    benchmark = bench_pb.Benchmark(cancelled=True)
    benchmark.cases.add(session="sessions/ended", state=v1.SESSION_STATE_SUCCEEDED)
    benchmark.cases.add(session="sessions/to-continue")
    running = benchmark.cases.add(session="sessions/running", state=v1.SESSION_STATE_RUNNING)
    benchmark.cases.add()
    assert benchmark_table.StagedCases().ask(benchmark) == [running] and benchmark.stopped_reason == "cancelled"


@pytest.mark.parametrize(
    ("limit", "old", "new", "more"),
    [
        ("NO_PROPOSAL", {"max_iterations": 2}, {"max_iterations": 3}, True),
        ("ITERATIONS", {"max_iterations": 3}, {"max_iterations": 3}, False),
        ("TOKENS", {"budget": {"tokens": 5}}, {"budget": {"tokens": 6}, "max_iterations": 1}, True),
        (
            "TOKENS",
            {"max_iterations": 1, "budget": {"tokens": 5}},
            {"budget": {"tokens": 5}, "max_iterations": 2},
            False,
        ),
        ("WALL_TIME", {"budget": {"wall_time": "60s"}}, {"budget": {"wall_time": "90.5s"}}, True),
        ("DOLLARS", {"budget": {"dollars": 1.0}}, {}, False),
    ],
)
def test_a_session_continues_if_its_very_limit_is_larger(limit: str, old: Any, new: Any, more: bool) -> None:
    ended = v1.Session(state=v1.SESSION_STATE_EXHAUSTED, spec=ParseDict(old, v1.SessionSpec()))
    ended.exhaustion_reason = v1.ExhaustionReason.Value(f"EXHAUSTION_REASON_{limit}")
    assert benchmark_table.can_continue(ended, ParseDict(new, v1.SessionSpec())) == more
    assert benchmark_table.can_continue(v1.Session(state=v1.SESSION_STATE_FAILED), v1.SessionSpec())
    assert not benchmark_table.can_continue(v1.Session(state=v1.SESSION_STATE_SUCCEEDED), v1.SessionSpec())


def test_groups_count_what_ended_and_leave_unknown_prices_unknown() -> None:
    benchmark = bench_pb.Benchmark()
    passed = benchmark.cases.add(
        environment="environments/A", category="run", state=v1.SESSION_STATE_SUCCEEDED, score=0.9
    )
    passed.iterations = 2
    passed.cost.CopyFrom(v1.Cost(requests=3, dollars=0.5))
    benchmark.cases.add(environment="environments/A", category="jump", state=v1.SESSION_STATE_FAILED).cost.requests = 1
    benchmark.cases.add(environment="environments/B", category="jump")
    benchmark_table.fill_groups(benchmark)
    by = {(group.kind, group.value): group for group in benchmark.groups}
    whole = by["all", "all"]
    assert (whole.total, whole.completed, whole.passed, whole.success_rate) == (3, 2, 1, 0.5)
    assert whole.mean_score == pytest.approx(0.45) and whole.iterations_to_pass == 2
    assert not whole.cost.HasField("dollars") and whole.cost.requests == 4
    assert not by["environment", "B"].HasField("success_rate")
    assert not any(group.kind in ("difficulty", "stage") for group in benchmark.groups)


def test_groups_of_numbers_and_words_have_an_order() -> None:
    benchmark = bench_pb.Benchmark()
    for category in ("jump", "10", "\xb2", "9", "run"):
        benchmark.cases.add(environment="environments/A", category=category)
    benchmark_table.fill_groups(benchmark)
    values = [group.value for group in benchmark.groups if group.kind == "category"]
    assert values == ["9", "10", "jump", "run", "\xb2"]


def test_the_tree_and_the_ledger() -> None:
    iterations = [
        iteration(1, 0.2),
        iteration(2, 0.5, parent=1),
        iteration(3, 0.1, parent=2),
        iteration(4, 0.6, parent=1),
    ]
    history = History(iterations, best=iterations[3].name)
    assert tools.tree(history).splitlines() == ["1 0.20", "  2 0.50", "    3 0.10", "  4 0.60 *"]
    assert [(row["iteration"], row["based_on"], row["delta"]) for row in tools.changes(history)] == [
        (2, 1, 0.3),
        (3, 2, -0.4),
        (4, 1, 0.4),
    ]


def test_directions_are_taken_once_and_repeatably(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path / "d.db"))
    with database.begin() as tx:
        add_direction(tx, "s", PROPOSAL, "first")
        add_direction(tx, "s", PROPOSAL, "second")
        add_direction(tx, "s", APPROVE, "fine", iteration=3)
        assert take_directions(tx, "s", 2, (PROPOSAL, APPROVE)) == {"proposal": "second"}
        assert take_directions(tx, "s", 2, (PROPOSAL, APPROVE)) == {"proposal": "second"}
        assert take_directions(tx, "s", 3, (PROPOSAL, APPROVE)) == {"approve": "fine"}
