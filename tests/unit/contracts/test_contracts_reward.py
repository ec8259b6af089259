"""Rewards on batches: against plain numpy and per-row loops, with memory, errors, snapshots, speed."""

import time

import numpy as np
import pytest
from dressage.contracts.failures import RewardError
from dressage.contracts.reward import BatchReward, load_reward

from tests.unit.contracts.conftest import GOOD, REMEMBERING

N = 7

CLASS = """
from p2p.training.reward_function import RewardFunction

class SpeedReward(RewardFunction):
    def compute(self, obs, action, next_obs, info):
        speed = float(info.get("x_velocity", 0.0))
        control = -0.1 * float(sum(a**2 for a in action))
        return speed + control, {"speed": speed, "ctrl": control}

    @property
    def latex(self):
        return r"r = v_x - 0.1 |a|^2"

    @property
    def terms(self):
        return {"speed": "forward velocity", "ctrl": "control penalty"}
"""

CLOSURE = '''
def _make_reward():
    steps = 0
    last = None

    def reward_fn(obs, action, next_obs, info):
        """Progress.

        LaTeX: x_{t+1} - x_t
        Terms:
            progress: distance since the last step
            steps: steps so far
        """
        nonlocal steps, last
        steps += 1
        progress = 0.0 if last is None else info["x_position"] - last
        last = info["x_position"]
        return progress + steps, {"progress": progress, "steps": float(steps)}

    return reward_fn
'''

BARE = """
LAST = {}
def reward_fn(obs, action, next_obs, info):
    if info["_episode_start"]:
        assert not LAST
    LAST["n"] = LAST.get("n", 0) + 1
    height = next_obs[0] - obs[0]
    return height + LAST["n"], {"height": height, "n": LAST["n"]}
"""


@pytest.fixture
def step(random_state):
    rng = np.random.default_rng(5)

    def make(seed, num_envs=N):
        return random_state(num_envs, seed), rng.normal(size=(num_envs, 6)), random_state(num_envs, seed + 1)

    return make


def test_terms_and_total(card, step):
    reward = BatchReward(load_reward(GOOD, card), card, N)
    state, action, next_state = step(0)
    output = reward(state, action, next_state)
    np.testing.assert_array_equal(output.terms["speed"], next_state.x_velocity)
    np.testing.assert_allclose(output.terms["effort"], [-0.1 * sum(a * a for a in row) for row in action])
    np.testing.assert_array_equal(output.total, sum(output.terms.values()))
    assert output.total.dtype == np.float64


def test_memory_follows_each_episode(card, step):
    reward = BatchReward(load_reward(REMEMBERING, card), card, N)
    best, steps = np.full(N, 0.25), np.zeros(N)
    rng = np.random.default_rng(1)
    for index in range(20):
        state, action, next_state = step(index)
        terms = reward(state, action, next_state).terms
        raised = np.maximum(best, next_state.x_position)
        steps += 1
        np.testing.assert_allclose(terms["record"], raised - best)
        np.testing.assert_array_equal(terms["steps"], steps)
        best = raised
        mask = rng.random(N) < 0.3
        reward.reset(mask)
        best[mask], steps[mask] = 0.25, 0.0


@pytest.mark.parametrize("source", [REMEMBERING, CLOSURE, BARE, CLASS.replace("SpeedReward(", "S(")], ids=str.split)
def test_snapshot_resumes_to_the_same_values(card, step, source):
    module = load_reward(source, card)
    first, second = BatchReward(module, card, N), BatchReward(module, card, N)
    for index in range(3):
        first(*step(index))
    first.reset(np.arange(N) == 2)
    snapshot = {name: array.copy() for name, array in first.snapshot().items()}
    data = [step(index) for index in range(10, 14)]
    expected = [first(*item).total for item in data]
    assert all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in snapshot.values())
    second.restore(snapshot)
    np.testing.assert_array_equal([second(*item).total for item in data], expected)
    second.restore(snapshot)
    np.testing.assert_array_equal(second(*data[0]).total, expected[0])


def test_augmented_assignment_rebinds(card, step):
    body = "    x = next_state.pitch\n    y = x\n    y += 1.0\n    return {'speed': x, 'effort': y}\n"
    source = GOOD[: GOOD.index("    return")] + body
    state, action, next_state = step(0)
    terms = BatchReward(load_reward(source, card), card, N)(state, action, next_state).terms
    np.testing.assert_array_equal(terms["speed"], next_state.pitch)
    np.testing.assert_array_equal(terms["effort"], next_state.pitch + 1.0)


def test_per_step_class_equals_gymnasiums_reward(card, trajectories):
    """HalfCheetah's stock reward is (x' - x) / dt - 0.1 |a|²: the adapter must reproduce it from the fields."""
    from dressage.contracts.segments import whole_episodes
    from dressage.contracts.transitions import evaluate

    module = load_reward(CLASS, card)
    assert module.style == "per_step"
    assert module.latex == "r = v_x - 0.1 |a|^2"
    assert module.terms == {"speed": "forward velocity", "ctrl": "control penalty"}
    terms = evaluate(module, card, whole_episodes(trajectories, card))
    for row, trajectory in enumerate(trajectories):
        np.testing.assert_allclose(terms[: trajectory.num_steps, :, row].sum(1), trajectory.reward, atol=2e-4)


def test_per_step_closure_starts_anew_with_the_episode(card, step):
    module = load_reward(CLOSURE, card)
    assert module.latex == "x_{t+1} - x_t"
    assert module.terms == {"progress": "distance since the last step", "steps": "steps so far"}
    reward = BatchReward(module, card, N)
    x = [item for item in (step(index) for index in range(3))]
    reward(*x[0])
    output = reward(*x[1])
    np.testing.assert_allclose(output.terms["progress"], x[1][2].x_position - x[0][2].x_position)
    mask = np.arange(N) < 3
    reward.reset(mask)
    output = reward(*x[2])
    np.testing.assert_array_equal(output.terms["steps"], np.where(mask, 1.0, 3.0))
    np.testing.assert_array_equal(output.terms["progress"][mask], 0.0)


def test_bare_reward_fn(card, step):
    module = load_reward(BARE, card)
    assert list(module.terms) == ["height", "n"]
    reward = BatchReward(module, card, N)
    state, action, next_state = step(0)
    reward(state, action, next_state)
    terms = reward(state, action, next_state).terms
    np.testing.assert_array_equal(terms["n"], 2.0)
    np.testing.assert_allclose(terms["height"], next_state.observation[:, 0] - state.observation[:, 0])


SPEED = '"speed": next_state.x_velocity'
FAULTS = {
    '"speed": next_state.x_velocity[:, None]': ("shape", "(7, 1)"),
    '"speed": next_state.x_velocity.sum()': ("shape", "()"),
    '"speed": 1.0': ("shape", "float"),
    '"speed": next_state.xpos_torso': ("shape", "(7, 3)"),
    '"speed": next_state.x_velocity > 0': ("dtype", "bool"),
    '"speed": np.where(next_state.x_velocity > 0, 1, 0)': ("dtype", "int"),
    '"speed": np.log(next_state.x_velocity * 0.0)': ("finite", "-inf"),
    '"speed": next_state.x_velocity * np.inf * 0.0': ("finite", "nan"),
    '"spied": next_state.x_velocity': ("terms", "spied"),
    '"speed": next_state.x_velocity + next_state.xpos_torso': ("shape", "broadcast"),
    '"speed": next_state.x_velocity if next_state.x_velocity > 0 else 0': ("array-truth", "truth value"),
    '"speed": next_state.x_velocity / len(3)': ("exception", "TypeError"),
    '"speed": next_state.x_velocity.nothing': ("exception", "nothing"),
    '"speed": [s for s in (state,)][0].nothing': ("unknown-field", "nothing"),
}


@pytest.mark.parametrize("expression", FAULTS, ids=str)
def test_faults_name_rule_line_and_what_was_seen(card, step, expression):
    rule, seen = FAULTS[expression]
    with np.errstate(all="ignore"), pytest.raises(RewardError) as caught:
        BatchReward(load_reward(GOOD.replace(SPEED, expression), card), card, N)(*step(0))
    failure = caught.value.failure
    assert (failure.rule, failure.line) == (rule, 6)
    assert seen in failure.seen
    assert "line 6" in str(caught.value)


def test_finite_names_term_and_row(card, step):
    source = GOOD.replace(SPEED, '"speed": np.where(next_state.x_velocity == state.x_velocity.max() + 1, 0.0, 1.0) / 1')
    source = GOOD.replace(SPEED, '"speed": 1.0 / (next_state.x_velocity - next_state.x_velocity[4])')
    del step
    from dressage.envs.state import State

    zeros = State({field.name: np.arange(float(N)) * np.ones((*field.shape, N)).T.T if not field.shape else
                   np.zeros((N, *field.shape)) for field in card.fields})  # fmt: skip
    with np.errstate(all="ignore"), pytest.raises(RewardError) as caught:
        BatchReward(load_reward(source, card), card, N)(zeros, np.zeros((N, 6)), zeros)
    assert (caught.value.term, caught.value.row) == ("speed", 4)


def test_memory_takes_whole_arrays_only(card, step):
    for expression in ("1.0", "next_state.xpos_torso", "next_state.x_position[:3]"):
        source = REMEMBERING.replace("np.maximum(before, next_state.x_position)", expression)
        with pytest.raises(RewardError) as caught:
            BatchReward(load_reward(source, card), card, N)(*step(0))
        assert (caught.value.rule, caught.value.line) == ("memory-shape", 8)


def test_states_cannot_be_written_into(card, step):
    source = GOOD.replace(
        "    return", "    q = [next_state.x_velocity]\n    for v in q:\n        v.itemset\n    return"
    )
    with pytest.raises(RewardError):
        BatchReward(load_reward(source, card), card, N)(*step(0))


def test_sum_of_terms_must_be_the_total(card, step):
    source = CLASS.replace("return speed + control,", "return speed,")
    with pytest.raises(RewardError, match="terms-sum"):
        BatchReward(load_reward(source, card), card, N)(*step(0))


RETURN = 'return speed + control, {"speed": speed, "ctrl": control}'
# Each fails in the rows that move forward, and there only.
BAD_TOTALS = {
    "nan": 'return (float("nan") if speed > 0 else speed + control), {"speed": speed, "ctrl": control}',
    "inf": 'return (float("inf") if speed > 0 else speed + control), {"speed": speed, "ctrl": control}',
    "too large a sum": """k = 1e308 if speed > 0 else 0.0
        return k + k, {"speed": k, "ctrl": k}""",
}


@pytest.mark.parametrize("name", BAD_TOTALS)
def test_a_total_that_is_not_finite_is_a_fault_of_its_rows(card, step, name):
    source = CLASS.replace(RETURN, BAD_TOTALS[name])
    module, (state, action, next_state) = load_reward(source, card), step(0)
    forward = next_state.x_position > state.x_position
    assert forward.any() and not forward.all()
    with np.errstate(over="ignore"):
        with pytest.raises(RewardError, match="the total is not finite, though its terms are") as caught:
            BatchReward(module, card, N)(state, action, next_state)
        output = BatchReward(module, card, N, on_not_finite="return")(state, action, next_state)
    error = caught.value
    assert (error.rule, error.term, error.row) == ("finite", "total", np.argmax(forward))
    np.testing.assert_array_equal(np.isfinite(output.total), ~forward)
    assert all(np.isfinite(value).all() for value in output.terms.values())


def test_a_term_that_is_not_finite_is_named_whatever_the_total(card, step):
    for total in ("0.0", "speed", "float('nan')"):
        source = CLASS.replace(RETURN, f'return {total}, {{"speed": speed, "ctrl": float("inf")}}')
        with pytest.raises(RewardError) as caught:
            BatchReward(load_reward(source, card), card, N)(*step(0))
        assert (caught.value.rule, caught.value.term, caught.value.row) == ("finite", "ctrl", 0)


def test_large_totals_that_are_finite_are_no_fault(card, step):
    source = CLASS.replace(RETURN, 'return 1e308, {"speed": 1e308, "ctrl": 0.0}')
    with np.errstate(over="ignore"):
        assert (BatchReward(load_reward(source, card), card, N)(*step(0)).total == 1e308).all()


# Each in line 8, in the rows that move forward.
ARITHMETIC = {
    "speed / (0.0 if speed > 0 else 1.0)": "ZeroDivisionError: float division by zero (line 8)",
    "math.exp(1e4 if speed > 0 else 1.0)": "OverflowError: math range error (line 8)",
    "1.0 * int(math.nan if speed > 0 else 1.0)": "ValueError: cannot convert float NaN to integer (line 8)",
    "10**400 if speed > 0 else 1": "OverflowError: int too large to convert to float (line 0)",
}


@pytest.mark.parametrize("expression", ARITHMETIC)
def test_arithmetic_that_raises_is_nan_in_its_rows_as_in_numpy(card, step, expression):
    """The check refuses it; training drops those rows and continues with the others."""
    source = CLASS.replace(RETURN, f'value = {expression}\n        return value, {{"speed": value, "ctrl": 0}}')
    module, (state, action, next_state) = load_reward(source, card), step(0)
    forward = next_state.x_position > state.x_position
    text = ARITHMETIC[expression]
    with pytest.raises(RewardError, match=text.split(" (")[0]) as caught:
        BatchReward(module, card, N)(state, action, next_state)
    assert caught.value.row == np.argmax(forward)
    output = BatchReward(module, card, N, on_not_finite="return")(state, action, next_state)
    assert output.raised == dict.fromkeys(np.flatnonzero(forward), text)
    for values in (output.total, *output.terms.values()):
        np.testing.assert_array_equal(np.isnan(values), forward)


FIRST = """if info["_episode_start"]:
            self.first = 1.0 / (0.0 if speed > 0 else 1.0)
        return self.first, {"speed": self.first, "ctrl": 0.0}"""


def test_a_row_that_raised_starts_anew(card, step):
    """What it left half done must not make it fail in another way, which would end all members."""
    reward = BatchReward(load_reward(CLASS.replace(RETURN, FIRST), card), card, N, on_not_finite="return")
    state, action, next_state = step(0)
    forward = next_state.x_position > state.x_position
    for _ in range(2):
        np.testing.assert_array_equal(reward(state, action, next_state).total, np.where(forward, np.nan, 1.0))
    reward.snapshot()


def test_other_exceptions_are_no_arithmetic(card, step):
    source = CLASS.replace("-0.1 * float(sum(a**2 for a in action))", "{}['none']")
    with pytest.raises(RewardError, match="KeyError"):
        BatchReward(load_reward(source, card), card, N, on_not_finite="return")(*step(0))


@pytest.mark.parametrize("value", ["speed", "{'speed': speed}", "(speed, speed)", "('x', {'speed': 1.0})", "None"])
def test_per_step_return_type(card, step, value):
    source = CLASS.replace('speed + control, {"speed": speed, "ctrl": control}', value)
    with pytest.raises(RewardError, match="return-type"):
        BatchReward(load_reward(source, card), card, N)(*step(0))


def test_state_that_cannot_be_saved_is_said(card, step):
    source = CLASS.replace("        speed = float", "        self.odd = {1, 2}\n        speed = float")
    reward = BatchReward(load_reward(source, card), card, N)
    reward(*step(0))
    with pytest.raises(RewardError, match="cannot be saved"):
        reward.snapshot()


def test_one_source_runs_on_jax(card, step):
    pytest.importorskip("jax")
    state, action, next_state = step(0)
    for source in (GOOD, REMEMBERING):
        module = load_reward(source, card)
        ours = BatchReward(module, card, N)(state, action, next_state)
        jax = BatchReward(module, card, N, backend="jax")
        np.testing.assert_allclose(jax(state, action, next_state).total, ours.total, rtol=1e-5, atol=1e-5)
        jax.reset(np.arange(N) == 1)
        jax(state, action, next_state)
        assert all(array.dtype == np.float64 for array in jax.snapshot().values())


def test_overhead_per_call(card, random_state):
    """Checks and bookkeeping around a four-term reward of 144 rows stay below 100 µs."""
    source = GOOD.replace("TERMS = {", 'TERMS = {"a": "", "b": "", ').replace(
        SPEED, SPEED + ', "a": -np.abs(next_state.pitch), "b": np.where(next_state.z_position > 0, 1.0, 0.0)'
    )
    module, state, action = load_reward(source, card), random_state(144), np.zeros((144, 6))
    reward = BatchReward(module, card, 144)

    def best_of(function, *arguments):
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            for _ in range(20):
                function(*arguments)
            times.append((time.perf_counter() - begin) / 20)
        return min(times)

    bare = best_of(module.function, state, action, state, reward._memory, reward._np)
    assert best_of(reward, state, action, state) - bare < 100e-6
