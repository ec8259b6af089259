"""Code policies: what the lint refuses, which answers are actions, and what the check reports."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from dressage.contracts import (
    PolicyError,
    check_feedback_in_sandbox,
    check_policy_in_sandbox,
    lint_feedback,
    lint_policy,
)
from dressage.contracts.spaces import Spaces
from dressage.contracts.syntax import kind_of
from dressage.envs.cards import load_card
from dressage.envs.trajectory import load_check_trajectories
from dressage.errors import InvalidArgument
from dressage.sandbox import Limits
from dressage.sandbox.capabilities import capabilities
from hypothesis import given
from hypothesis import strategies as st

sandboxed = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

GOOD = """
from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

import numpy as np


class Mode(Enum):
    LEFT = 0
    RIGHT = 1


@dataclass
class Memory:
    seen: deque = field(default_factory=deque)


class Base:
    def reset(self):
        self.memory = Memory()
        self.heap = []


class Policy(Base):
    def __init__(self, gain=0.3):
        super().__init__()
        self.gain, self.rng = gain, np.random.default_rng(0)

    def act(self, obs):
        self.memory.seen.append(obs)
        heapq.heappush(self.heap, float(obs[0]))
        match obs[2] + self.gain * obs[3] > 0:
            case True:
                mode = Mode.RIGHT
            case _:
                mode = Mode.LEFT
        try:
            print(f"{mode} {np.linalg.norm(obs):.2f}")
        except (ValueError, ZeroDivisionError) as error:
            raise RuntimeError("no norm") from error
        return mode.value
"""
FEEDBACK = """
class Feedback:
    def summarize_trajectory(self, observations):
        return f"{len(observations)} observations, the last one {observations[-1].round(2)}"
"""


def policy(body="return 0", head="", start="pass", reset="pass"):
    """Return the source of a policy."""
    return (
        f"import numpy as np\n{head}\nclass Policy:\n    def __init__(self):\n        {start}\n"
        f"    def reset(self):\n        {reset}\n    def act(self, obs):\n        {body}\n"
    )


def rules(violations):
    return [violation.rule for violation in violations]


def test_ordinary_python_passes_the_lint():
    assert lint_policy(GOOD) == [] and lint_feedback(FEEDBACK) == []
    assert [kind_of(source) for source in (GOOD, FEEDBACK, "def reward(): pass", "class")] == [
        "policy", "feedback", "reward", "reward",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        ("class Policy", "syntax", 1),
        ("", "syntax", 0),
        ("x = 1" + " " * 70_000, "size", 0),
        ("class Agent:\n    def act(self, obs): return 0\n", "no-policy", 0),
        (policy("return 0", head="import gymnasium"), "import", 2),
        (policy("import dressage.envs; return 0"), "import", 9),
        (policy("from os import fork; return 0"), "import", 9),
        (policy("return 0", head="import os.path"), "import", 2),
        (policy("return 0", head="from . import secrets"), "import", 2),
        (policy("return 0", head="from math import *"), "import", 2),
        (policy("return 0", head="from numpy import load"), "np-function", 2),
        (policy("return 0", head="import numpy.ctypeslib"), "import", 2),
        (policy("return np.load('x')"), "np-function", 9),
        (policy("return open('x')"), "forbidden-name", 9),
        (policy("return eval('1')"), "forbidden-name", 9),
        (policy("return obs.__array_interface__"), "dunder", 9),
        (policy("return obs.ctypes"), "forbidden-attribute", 9),
        (policy("return maths.pi"), "unknown-name", 9),
        (policy("return 0", head="async def f(): pass"), "statement", 2),
        ("class Policy:\n    def act(self, obs): return 0\n", "signature", 1),
        ("class Policy:\n    def reset(self): pass\n    def act(self): return 0\n", "signature", 3),
        ("class Policy:\n    def reset(self, x): pass\n    def act(self, obs): return 0\n", "signature", 2),
        (
            "class Policy:\n    def __init__(self, env): pass\n    def reset(self): pass\n    def act(self, o): return 0\n",
            "signature",
            2,
        ),
    ],
)
def test_the_lint_names_rule_line_and_remedy(source, rule, line):
    (violation, *more) = lint_policy(source)
    assert (violation.rule, violation.line) == (rule, line) and not more
    assert violation.message.endswith(".") and len(violation.message) > 20


@given(st.text(max_size=300))
def test_the_lint_survives_any_text(text):
    assert all(violation.message for violation in lint_policy(text))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "HalfCheetah-v5", "InvertedPendulum-v5", "Humanoid-v5"])
def test_spaces_are_those_of_stock_gymnasium(env_id):
    spaces, env = Spaces.of(load_card(env_id)), gymnasium.make(env_id)
    assert spaces.action_shape == env.action_space.shape and spaces.num_observations == 0
    assert Spaces.from_dict(spaces.to_dict()) == spaces
    if spaces.num_actions:
        assert spaces.num_actions == env.action_space.n
    else:
        assert np.array_equal(np.array(spaces.low, np.float32), env.action_space.low)
        assert np.array_equal(np.array(spaces.high, np.float32), env.action_space.high)


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-5, 5)


@given(st.lists(st.lists(numbers, min_size=0, max_size=3), min_size=1, max_size=4))
def test_boxes_are_clipped_into_the_space_or_refused(answers):
    space = gymnasium.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([0.5, 2.0], np.float32))
    spaces = Spaces(3, 0, 0, (-1.0, 0.0), (0.5, 2.0))
    bad = [index for index, row in enumerate(answers) if len(row) != 2 or not np.isfinite(row).all()]
    if bad:
        with pytest.raises(PolicyError) as raised:
            spaces.actions(answers)
        assert raised.value.row == bad[0] and raised.value.rule in ("action-shape", "action-finite")
        return
    actions = spaces.actions([np.array(row) for row in answers])
    assert all(space.contains(action) for action in actions)
    assert np.array_equal(actions, np.clip(np.array(answers, np.float64), space.low, space.high).astype(np.float32))
    assert np.array_equal(spaces.check_reply(actions, len(answers)), actions)


@given(st.lists(st.integers(-2, 4) | st.integers(2**62, 2**70), min_size=1, max_size=4))
def test_choices_are_those_of_the_space_or_refused(answers):
    space, spaces = gymnasium.spaces.Discrete(3), Spaces(3, 0, 3, (), ())
    bad = [index for index, answer in enumerate(answers) if not space.contains(answer)]
    if bad:
        with pytest.raises(PolicyError) as raised:
            spaces.actions(answers)
        assert (raised.value.row, raised.value.rule) == (bad[0], "action-range")
        return
    actions = spaces.actions([np.int32(answer) for answer in answers])
    assert actions.dtype == np.int64 and actions.tolist() == answers


@pytest.mark.parametrize("answer", [None, 1.0, "1", [1], np.array([1]), np.float64(1), object(), 1j, {}])
def test_what_is_no_integer_is_no_choice(answer):
    with pytest.raises(PolicyError, match="must return an int from 0 to 2") as raised:
        Spaces(3, 0, 3, (), ()).actions([1, answer])
    assert raised.value.row == 1


@pytest.mark.parametrize(
    "array",
    [
        None, [[0.0, 0.0]], np.zeros((1, 2)), np.zeros((2, 2), np.float32), np.full((1, 2), np.nan, np.float32),
        np.full((1, 2), 3.0, np.float32), np.zeros((1, 3), np.float32),
    ],
)  # fmt: skip
def test_actions_from_a_process_are_checked_once_more(array):
    with pytest.raises(InvalidArgument, match="actions"):
        Spaces(3, 0, 0, (-1.0, 0.0), (0.5, 2.0)).check_reply(array, 1)


def test_observations_are_copies_and_integers_where_discrete():
    observations = np.eye(3)
    rows = Spaces(3, 0, 2, (), ()).rows(observations)
    rows[0][:] = 7.0
    assert np.array_equal(observations, np.eye(3)) and np.array_equal(rows[1], [0.0, 1.0, 0.0])
    assert list(Spaces(3, 3, 2, (), ()).rows(observations)) == [0, 1, 2]


def episodes(env_id):
    return [episode for group in load_check_trajectories(env_id).values() for episode in group]


@sandboxed
def test_the_check_measures_an_action(tmp_path):
    report = check_policy_in_sandbox(GOOD, load_card("CartPole-v1"), episodes("CartPole-v1"), scratch=tmp_path)
    assert report.ok and report.style == "policy" and 0.1 < report.act_microseconds < 10_000
    report = check_feedback_in_sandbox(FEEDBACK, load_card("CartPole-v1"), episodes("CartPole-v1"), scratch=tmp_path)
    assert report.ok and report.style == "feedback"


@sandboxed
@pytest.mark.parametrize(
    ("source", "rule", "line", "seen"),
    [
        (policy("return 2"), "action-range", 0, "int 2"),
        (policy("return obs"), "action-type", 0, "array of shape (4,), float64"),
        (policy("return 1 // 0"), "exception", 9, "ZeroDivisionError"),
        (policy(start="raise ValueError('no')"), "exception", 5, "ValueError: no"),
        (policy(head="raise KeyError(3)"), "exception", 2, "KeyError: 3"),
        (policy("return self.act(obs)"), "exception", 9, "RecursionError"),
        (policy("return int(np.zeros((10**6, 10**5)).sum())"), "memory_budget", 9, "MemoryError"),
        (policy("return [0 for i in range(10**7)][0]"), "time_budget", 0, " s"),
        (policy("while True: pass"), "time_budget", 9, "longer than 12 s"),
        (policy("return sum(range(10**15))"), "time_budget", 9, "longer than 12 s"),
        (policy(head="class Policy(metaclass=int): pass"), "exception", 2, "TypeError"),
        ("Policy = None\n" + policy().replace("class Policy", "class Policy") + "\nPolicy = 3\n", "no-policy", 0, ""),
    ],
)
def test_the_check_says_what_is_wrong(source, rule, line, seen, tmp_path):
    limits = Limits(memory_bytes=1 << 30, wall_seconds=12.0)
    report = check_policy_in_sandbox(
        source, load_card("CartPole-v1"), episodes("CartPole-v1"), scratch=tmp_path, limits=limits, act_seconds=0.02
    )
    (failure,) = report.failures
    assert not report.ok and (failure.rule, failure.line) == (rule, line)
    assert seen in failure.seen and failure.message


@sandboxed
def test_the_check_of_feedback_says_what_is_wrong(tmp_path):
    card, recorded = load_card("CartPole-v1"), episodes("CartPole-v1")
    for body, rule in (("return 3", "return-type"), ("return ''", "return-type"), ("return 1 / 0", "exception")):
        source = f"class Feedback:\n    def summarize_trajectory(self, observations):\n        {body}\n"
        report = check_feedback_in_sandbox(source, card, recorded, scratch=tmp_path)
        assert [failure.rule for failure in report.failures] == [rule]


@sandboxed
def test_a_check_without_recordings_observes_zeros(tmp_path):
    report = check_policy_in_sandbox(
        policy("return 0 if obs.shape == (4,) and not obs.any() else 9"), load_card("CartPole-v1"), [], scratch=tmp_path
    )
    assert report.ok


def test_a_check_whose_process_is_killed_from_outside_is_repeated(tmp_path: Path) -> None:
    killed: list[int] = []
    stopping = threading.Event()

    def kill() -> None:
        while not killed and not stopping.wait(0.002):
            for process in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    if "policy_check:check_policy" in " ".join(process.cmdline()):
                        process.kill()
                        killed.append(process.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = check_policy_in_sandbox(GOOD, load_card("CartPole-v1"), episodes("CartPole-v1"), scratch=tmp_path)
    finally:
        stopping.set()
        killer.join()
    assert killed and not report.failures
