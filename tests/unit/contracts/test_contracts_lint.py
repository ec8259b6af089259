"""Static checks: what is refused, by which rule and at which line, and what passes."""

import ast

import pytest
from dressage.contracts import lint_judge, lint_reward
from dressage.contracts.namespace import JUDGE_NAMES, REWARD_NAMES, array_namespace
from dressage.contracts.syntax import literal, term_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.contracts.conftest import GOOD, JUDGE, REMEMBERING

HEAD = 'LATEX = "x"\nTERMS = {"a": "m"}\nMEMORY = {"m": 0.0}\ndef reward(state, action, next_state, memory, np):\n'
"""Four lines; the bodies below start at line 5."""
BODIES = {
    "import os": ("import", "os"),
    "import numpy as np": ("import", "given as an argument"),
    "from os import path": ("import", "os"),
    "x = open('f')": ("forbidden-name", "open"),
    "x = eval('1')": ("forbidden-name", "eval"),
    "x = getattr(state, 'x_velocity')": ("forbidden-name", "getattr"),
    "x = __import__('os')": ("dunder", "__import__"),
    "x = ().__class__": ("dunder", "__class__"),
    "x = state._arrays": ("dunder", "_arrays"),
    "x = '{0.real}'.format(1)": ("forbidden-attribute", "format"),
    "state.x_velocity.tofile('f')": ("forbidden-attribute", "tofile"),
    "x = state.x_velo": ("unknown-field", "x_velocity"),
    "x = next_state.speed": ("unknown-field", "Use a field of the card"),
    "x = memory.n": ("memory-field", "m"),
    "memory.n = action": ("memory-field", "m"),
    "x = np.random.normal()": ("np-function", "deterministic"),
    "x = np.load('f')": ("np-function", "files"),
    "x = np.sqare(action)": ("np-function", "np.square"),
    "x = np.linalg.eig(action)": ("np-function", "np.linalg.eig"),
    "action[0] = 1": ("in-place", "np.where"),
    "action[:, 0] += 1": ("in-place", "np.where"),
    "np.add(action, 1, out=action)": ("in-place", "np.where"),
    "action.sort()": ("in-place", "sort"),
    "global y": ("statement", "global"),
    "class A: pass": ("statement", "class"),
    "async def f(): pass": ("statement", "async"),
    "with action: pass": ("statement", "with"),
    "del action": ("statement", "del"),
    "yield action": ("statement", "yield"),
    "x = undefined": ("unknown-name", "undefined"),
    "x = nextstate.x_velocity": ("unknown-name", "next_state"),
}


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_violations_name_rule_line_and_remedy(card, body):
    rule, part = BODIES[body]
    violations = lint_reward(HEAD + f"    {body}\n    return {{'a': state.x_velocity}}\n", card)
    matching = [violation for violation in violations if violation.rule == rule]
    assert matching, violations
    assert matching[0].line == 5
    assert part in matching[0].message
    assert matching[0].message.endswith(".")


@pytest.mark.parametrize("source", [GOOD, REMEMBERING], ids=["plain", "memory"])
def test_good_rewards_pass(card, source):
    assert lint_reward(source, card) == []


def test_ordinary_python_passes(card):
    body = """
    import math
    def near(x, to=0.0, *, width=1.0):
        return np.exp(-np.square((x - to) / width))
    parts = [near(getter, width=0.5 + i) for i, getter in enumerate((state.pitch, next_state.pitch))]
    total = sum(parts)
    total += max(1, len(parts)) * math.pi
    for name in ("a",):
        if name == "a" and isinstance(name, str):
            memory.m += total
    while False:
        break
    square = lambda x: x**2
    return {"a": np.where(next_state.z_position > 0, square(total), np.linalg.norm(next_state.xpos_torso, axis=-1))}
"""
    assert lint_reward(HEAD + body, card) == []


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        ("", "syntax", 0),
        ("def reward(:", "syntax", 1),
        ("x = 1\ny = = 2", "syntax", 2),
        ("x = 1", "no-reward", 0),
        ("#" * 70_000, "size", 0),
        ("(" * 5000 + ")" * 5000, "syntax", 1),
        ("x = '\0'", "syntax", 0),
        (GOOD.replace("LATEX", "TEX"), "latex", 0),
        (GOOD.replace("TERMS", "PARTS"), "terms", 0),
        (GOOD.replace('{"speed": "forward velocity, m/s", "effort": "squared torque"}', "dict(a=1)"), "terms", 3),
        (REMEMBERING.replace('"best": 0.25', '"best": [1, 2]'), "memory", 4),
        (GOOD.replace("memory, np):", "np):"), "signature", 5),
        (GOOD.replace("memory, np):", "memory, np, k=1):"), "signature", 5),
        ("class A:\n  def compute(self, obs): pass", "signature", 2),
        ("def reward_fn(obs, action): pass", "signature", 1),
    ],
)
def test_whole_source_rules(card, source, rule, line):
    violations = lint_reward(source, card)
    assert (rule, line) in {(violation.rule, violation.line) for violation in violations}, violations


PER_STEP = """
from __future__ import annotations
import math
import numpy as np
from p2p.training.reward_function import RewardFunction

class Forward(RewardFunction):
    def __init__(self):
        super().__init__()
        self.last = None
    def compute(self, obs: np.ndarray, action, next_obs, info) -> tuple[float, dict]:
        try:
            speed = float(info["x_velocity"])
        except KeyError:
            raise ValueError("no velocity")
        values = {}
        values["speed"] = speed
        return speed, values
    @property
    def terms(self):
        return {"speed": "m/s"}
"""


def test_per_step_rewards_have_their_own_rules(card):
    assert lint_reward(PER_STEP, card) == []
    for line in ("import os", "from os import path", "import numpy", "from x import RewardFunction as R"):
        assert "import" in {violation.rule for violation in lint_reward(line + "\n" + PER_STEP, card)}
    assert {v.rule for v in lint_reward(PER_STEP + "x = PER.__globals__\n", card)} == {"dunder", "unknown-name"}


def test_judges(card):
    assert lint_judge(JUDGE, card) == []
    wrong = JUDGE.replace("x_velocity", "x_speed")
    assert [(v.rule, v.line) for v in lint_judge(wrong, card)] == [("unknown-field", 3)]
    assert "near matches: x_velocity, x_position" in lint_judge(wrong, card)[0].message
    assert lint_judge(JUDGE.replace("def judge(trajectory, np)", "def judge(trajectory)"), card)[0].rule == "signature"
    assert lint_judge("import os\n" + JUDGE, card)[0].rule == "import"
    assert lint_judge("x = 1", card)[0].rule == "signature"


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_lint_never_raises(text):
    from dressage.envs.cards import load_card

    card = load_card("HalfCheetah-v5")
    assert isinstance(lint_reward(text, card), list)
    assert isinstance(lint_judge(text, card), list)


@pytest.mark.parametrize(
    ("environment", "guess", "meant"),
    [
        ("HalfCheetah-v5", "x_speed", "x_velocity"),
        ("HalfCheetah-v5", "forward_velocity", "x_velocity"),
        ("HalfCheetah-v5", "x_velocty", "x_velocity"),
        ("Walker2d-v5", "torso_contact_force", "contact_torso"),
        ("Ant-v5", "heading", "yaw"),
        ("Humanoid-v5", "head_z", "head_height"),
    ],
)
def test_an_unknown_field_names_what_was_likeliest_meant(environment, guess, meant):
    from dressage.contracts.lint import nearest
    from dressage.envs.cards import load_card

    assert nearest(guess, load_card(environment).field_names)[0] == meant


def test_namespace_is_an_allow_list():
    np_ = array_namespace("numpy")
    assert np_.square(3) == 9
    assert np_.linalg.norm([3.0, 4.0]) == 5.0
    for name in ("load", "random", "save", "__builtins__", "fft", "lib"):
        with pytest.raises(AttributeError):
            getattr(np_, name)
    with pytest.raises(AttributeError):
        np_.square = None
    with pytest.raises(AttributeError):
        np_.square_root  # noqa: B018
    assert array_namespace("numpy", wide=True).fft.rfft([1.0, 0.0]).tolist() == [1, 1]


def test_reward_names_exist_in_numpy_and_in_jax():
    import numpy

    assert [name for name in REWARD_NAMES if not hasattr(numpy, name)] == []
    assert [name for name in JUDGE_NAMES if not hasattr(numpy, name)] == []
    jnp = pytest.importorskip("jax.numpy")
    assert [name for name in REWARD_NAMES if not hasattr(jnp, name)] == []


def test_literals_and_lines():
    tree = ast.parse(REMEMBERING)
    assert literal(tree, "MEMORY")[0] == {"best": 0.25, "steps": 0.0}
    assert literal(tree, "NOTHING") is None
    assert term_lines(tree) == {"record": 10, "steps": 10}
