"""Properties of parameters, of the revision rule and of evidence."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.errors import InvalidArgument
from dressage_orchestrator.methods.parameters import METHOD, evidence
from dressage_orchestrator.methods.parameters.form import Form, as_text, bound_revision, key_of, limits_revision
from dressage_orchestrator.methods.parameters.history import read
from dressage_orchestrator.service import with_defaults
from hypothesis import given, settings
from hypothesis import strategies as st

numbers = st.floats(-100, 100, allow_nan=False)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20)
tables = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20)


def form_of(environment: str, profile: str = "corrected") -> Form:
    spec = v1.SessionSpec(intent="x", environment=f"environments/{environment}", model="openai/x")
    spec.parameters.profile = profile
    full = with_defaults(spec, METHOD, default_model="x", default_pool="local")
    return Form.of(full, load_card(environment))


@given(pairs, st.floats(0.01, 10))
def test_a_bounded_revision_changes_each_number_by_a_step(given_pairs: list[tuple[float, float]], step: float) -> None:
    before, after = zip(*given_pairs, strict=True)
    kept_values = bound_revision(before, after, step_size=step, choices=0)
    for old, new, kept in zip(before, after, kept_values, strict=True):
        assert abs(kept - old) <= step + 1e-9
        assert abs(kept - new) <= abs(old - new) + 1e-9  # never away from the revision
        if abs(new - old) <= step - 1e-9:
            assert kept == pytest.approx(new)


@given(tables)
def test_a_bounded_table_changes_in_one_entry_at_most(given_pairs: list[tuple[int, int]]) -> None:
    before, after = zip(*given_pairs, strict=True)
    kept_values = bound_revision(before, after, step_size=1, choices=4)
    changed = [index for index, pair in enumerate(zip(before, kept_values, strict=True)) if pair[0] != pair[1]]
    assert changed == [index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]][:1]
    assert all(kept_values[index] == after[index] for index in changed)


def test_the_rule_applies_from_the_threshold_on() -> None:
    assert limits_revision(480.0, 480.0) and not limits_revision(479.9, 480.0) and not limits_revision(500.0, None)


@settings(max_examples=30)
@given(st.integers(0, 1_000_000))
def test_random_candidates_are_within_the_form(seed: int) -> None:
    linear, table = form_of("CartPole-v1"), form_of("FrozenLake-v1")
    for form in (linear, table):
        drawn = form.random(3, seed=seed)
        assert drawn == form.random(3, seed=seed) and len({key_of(values) for values in drawn}) == 3
        for values in drawn:
            assert form.check(values, field="x") == values
            assert form.parse(as_text(values), field="x") == pytest.approx(values)


@given(st.lists(st.one_of(st.floats(), st.integers(-10, 10)), min_size=0, max_size=20))
def test_what_is_accepted_is_within_the_form(values: list[float]) -> None:
    for environment in ("CartPole-v1", "FrozenLake-v1"):
        form = form_of(environment)
        try:
            kept_values = form.check(values, field="x")
        except InvalidArgument:
            continue
        assert len(kept_values) == form.size
        if form.choices:
            assert all(value in range(form.choices) for value in kept_values)
        else:
            assert all(abs(value) <= 6 + 1e-9 for value in kept_values)


def test_the_paper_does_not_enforce_the_range() -> None:
    wide = (1e6, *[0.0] * 9)
    assert form_of("CartPole-v1", "r2po-paper").check(wide, field="x") == wide
    with pytest.raises(InvalidArgument, match="-6 to 6"):
        form_of("CartPole-v1").check(wide, field="x")
    for bad in ((math.nan, *[0.0] * 9), (1e39, *[0.0] * 9)):
        with pytest.raises(InvalidArgument):
            form_of("CartPole-v1", "r2po-paper").check(bad, field="x")
    with pytest.raises(InvalidArgument):
        form_of("FrozenLake-v1", "r2po-paper").check([4.0] * 16, field="x")


@pytest.mark.parametrize("text", ["", "[1]", "{}", "[true,0,0,0,0,0,0,0,0,0]", '["1",0,0,0,0,0,0,0,0,0]', "1e999"])
def test_text_that_is_no_list_of_parameters_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        form_of("CartPole-v1").parse(text, field="proposal_source")
    assert refused.value.field.startswith("proposal_source")


# Evidence.


def episode(steps: int, rewards: np.ndarray | None = None) -> Trajectory:
    """An episode of CartPole whose position grows, by a jump in step 37."""
    observation = np.zeros((steps + 1, 4))
    observation[:, 0] = np.arange(steps + 1) * 0.01 + (np.arange(steps + 1) > 37) * 5.0
    return Trajectory(
        environment="CartPole-v1",
        seed=0,
        fields={"observation": observation},
        action=np.ones(steps),
        reward=np.ones(steps) if rewards is None else rewards,
        terminated=False,
        truncated=True,
        qpos=np.zeros((steps + 1, 0)),
        qvel=np.zeros((steps + 1, 0)),
    )


def steps_of(text: str) -> list[int]:
    return [int(line.split(":")[0]) for line in text.splitlines() if line[:1].isdigit()]


def test_a_bounded_rollout_has_head_tail_and_decisive_steps() -> None:
    text = evidence.rollout(episode(1000), bound=evidence.ROLLOUT, title="Median rollout")
    shown = steps_of(text)
    assert shown[:10] == list(range(10)) and shown[-16:] == [*range(985, 1001)] and 37 in shown
    assert len(shown) <= evidence.ROLLOUT.steps + 1 and "steps omitted" in text
    assert text.startswith("Median rollout: return 1000, 1000 steps") and text.endswith(
        "(the limit of steps was reached)"
    )
    rewards = np.full(1000, -1.0)
    rewards[[200, 700]] = 10.0, -30.0
    assert evidence.decisive_steps(episode(1000, rewards), 8) == [200, 700]


@settings(max_examples=50)
@given(st.integers(0, 120), st.integers(0, 12), st.integers(0, 12), st.integers(0, 8))
def test_a_rollout_shows_steps_in_order_within_its_bound(steps: int, head: int, tail: int, decisive: int) -> None:
    text = evidence.rollout(episode(steps), bound=evidence.Bound(head, tail, decisive), title="First rollout")
    shown = steps_of(text)
    assert shown == sorted(set(shown)) and shown[-1] == steps
    assert len(shown) - 1 <= max(head + tail + decisive, 0) or steps <= head + tail + decisive
    omitted = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("..."))
    assert len(shown) - 1 + omitted == steps


def test_a_whole_rollout_of_a_table_has_states_and_actions() -> None:
    recorded = load_check_trajectories("FrozenLake-v1")["random"][0]
    text = evidence.rollout(recorded, bound=evidence.WHOLE, title="First rollout", rewards=True, observations=16)
    lines = text.splitlines()
    assert len(lines) == recorded.num_steps + 2 and lines[1].startswith("0: state 0 -> action ")
    assert "reward 0" in lines[1] and lines[-1].endswith("(the episode terminated)")


def test_statistics_count_successes_within_the_tolerance() -> None:
    text = evidence.statistics([499.5, 499.4, 10.0], [500, 499, 10], optimum=500.0)
    assert "mean 336, min 10, max 500" in text and "mean 336, min 10, max 500" in text.splitlines()[2]
    assert "reached the optimum 500: 1; others: 2" in text
    assert "optimum" not in evidence.statistics([1.0], [1], optimum=None)


# History.


def iteration(number: int, *candidates: tuple[str, float], chosen: int) -> v1.Iteration:
    entry = v1.Iteration(number=number)
    for index, (origin, score) in enumerate(candidates):
        values = [number, index]
        entry.parameters.candidates.add(values=values, origin=origin, mean_return=score, returns=[score, score])
    entry.parameters.chosen = chosen
    return entry


def test_the_history_has_winners_or_all_and_finds_repeats() -> None:
    first = iteration(1, ("warmup", 1.0), ("search", 2.0), ("critic", 3.0), chosen=3)
    second = iteration(2, ("search", 5.0), ("critic", 4.0), chosen=1)
    third = iteration(3, ("search", 9.0), chosen=1)
    history = read([first, second, third], before=3)
    assert [trial.mean for trial in history.prompt_trials(losers=True)] == [1.0, 2.0, 3.0, 5.0, 4.0]
    assert [trial.mean for trial in history.prompt_trials(losers=False)] == [1.0, 3.0, 5.0]
    assert [trial.mean for trial in history.prompt_trials(losers=False, until=1)] == [1.0, 3.0]
    latest, repeat = history.latest, history.find((1.0, 2.0))
    assert latest is not None and latest.mean == 5.0 and repeat is not None and repeat.iteration == 1
    assert history.find((1.0, 0.0)) is None, "a random candidate was played for one episode only"
    assert history.find((3.0, 0.0)) is None
    assert json.loads(as_text((1.0, 0.5))) == [1, 0.5]
