"""Hostile and broken policies in their process: each fails with a named reason, in time, and reaches nothing."""

from __future__ import annotations

import py_compile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from dressage import contracts
from dressage.contracts import CHECK_LIMITS
from dressage.contracts import host as contracts_host
from dressage.contracts.policy_host import (
    FEEDBACK,
    MAX_MESSAGE_BYTES,
    PLAY,
    POLICY_LIMITS,
    FeedbackHost,
    PlayLimits,
    PolicyFailure,
    PolicyHost,
    TimeBudget,
)
from dressage.contracts.spaces import Spaces
from dressage.envs.catalogue.noise_world import rules as boards
from dressage.policies import CodePolicy
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.process import SandboxProcess
from dressage.sdk.code_policy import SandboxedPolicy
from dressage_trainer.evaluation import code_player
from dressage_trainer.lease.sandboxes import Sandboxes

from tests.unit.contracts.test_contracts_policy import policy

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

CART, CHEETAH = Spaces(4, 0, 2, (), ()), Spaces(17, 0, 0, (-1.0,) * 6, (1.0,) * 6)
ROWS = np.arange(12.0).reshape(3, 4)
# What a policy can get hold of if it is clever enough to get round the lint.
REAL = (
    "real = next(c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close').__init__.__globals__"
)


@contextmanager
def process(tmp_path, target=PLAY):
    """A sandboxed process; it has ended afterwards."""
    with SandboxProcess.start(
        target, limits=POLICY_LIMITS, scratch=tmp_path, max_message_bytes=MAX_MESSAGE_BYTES
    ) as running:
        yield running
    assert running.poll() is not None


def play(tmp_path, source, spaces=CART, rows=ROWS, *, lint=True, steps=1, **limits):
    """Return the actions of the last step."""
    given = PlayLimits(**{"act_seconds": 0.3, "episode_seconds": 20.0, "candidate_seconds": 20.0, **limits})
    with process(tmp_path) as running:
        host = PolicyHost(running, TimeBudget(given.candidate_seconds))
        host.load(source, spaces, limits=given, lint=lint)
        host.begin(len(rows))
        for _ in range(steps):
            actions = host.act(np.array(rows), range(len(rows)))
        return actions, host


def test_each_episode_has_an_instance_and_ends_when_left_out(tmp_path):
    source = policy("self.n += 1; return min(self.n, 5) if obs[0] >= 0 else 0", start="self.n = 0", reset="self.n += 1")
    with process(tmp_path) as running:
        host = PolicyHost(running, TimeBudget(60.0))
        host.load(source, Spaces(4, 0, 6, (), ()), limits=PlayLimits())
        host.begin(3)
        assert host.act(ROWS, [0, 1, 2]).tolist() == [2, 2, 2]
        assert host.act(ROWS[[0, 2]], [0, 2]).tolist() == [3, 3]
        assert host.act(ROWS[[2]] * -1, [2]).tolist() == [0]
        assert host.act(ROWS[[2]], [2]).tolist() == [5]
        assert host.acts == 7 and 0 < host.seconds < 1
        host.begin(1)
        assert host.act(ROWS[[0]], [0]).tolist() == [2]


def test_actions_are_clipped_and_discrete_observations_are_integers(tmp_path):
    actions, _ = play(tmp_path, policy("return obs[:6] * 9"), CHEETAH, np.linspace(-1, 1, 34).reshape(2, 17))
    assert actions.dtype == np.float32 and (np.abs(actions) == 1).any() and (np.abs(actions) <= 1).all()
    actions, _ = play(tmp_path, policy("return obs if type(obs) is int else 0"), Spaces(3, 3, 3, (), ()), np.eye(3))
    assert actions.tolist() == [0, 1, 2]


def test_writing_into_an_observation_changes_nothing(tmp_path):
    rows = np.array(ROWS)
    actions, _ = play(tmp_path, policy("obs[:] = 1e9; return 0"), rows=rows, steps=2)
    assert actions.tolist() == [0, 0, 0] and np.array_equal(rows, ROWS)


FAILURES = {
    "hang": (policy("while True: pass"), "POLICY_TOO_SLOW", 9),
    "hang in C": (policy("return sum(range(10**15))"), "POLICY_TOO_SLOW", 9),
    "hang in the constructor": (policy(start="\n        while True: pass"), "POLICY_TOO_SLOW", 6),
    "hang in reset": (policy(reset="\n        while True: pass"), "POLICY_TOO_SLOW", 8),
    "hang at import": (policy(head="while True: pass"), "POLICY_TOO_SLOW", 2),
    "one slow action": (policy("\n        for _ in range(10**10): pass"), "POLICY_TOO_SLOW", 10),
    "not a number": (policy("return float('nan')"), "POLICY_BAD_ACTION", 0),
    "wrong shape": (policy("return [0, 1]"), "POLICY_BAD_ACTION", 0),
    "huge array": (policy("return np.zeros(10**6)"), "POLICY_BAD_ACTION", 0),
    "out of range": (policy("return -1"), "POLICY_BAD_ACTION", 0),
    "large allocation": (policy("return np.ones(10**11)"), "POLICY_OUT_OF_MEMORY", 9),
    "growing": (
        policy("\n        while True: self.a.append(np.ones(10**7))", start="self.a = []"),
        "POLICY_OUT_OF_MEMORY",
        10,
    ),
    "raise": (policy("raise ValueError('why')"), "POLICY_RAISED", 9),
    "own base exception": (policy("raise type('Odd', (Exception,), {'__str__': None})()"), "POLICY_RAISED", 9),
    "import": (policy("import dressage.envs"), "POLICY_INVALID", 9),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_broken_policy_fails_with_a_named_reason(name, tmp_path):
    source, reason, line = FAILURES[name]
    begin = time.monotonic()
    with pytest.raises(PolicyFailure) as raised:
        play(tmp_path, source, **(dict(act_seconds=25.0, candidate_seconds=40.0) if name == "growing" else {}))
    assert raised.value.reason == reason and time.monotonic() - begin < 60
    if name != "growing":  # the kernel or the time may end it first
        assert raised.value.failure.line == line, raised.value.message


EXPLOITS = {
    "import the environment": ("import gymnasium", "POLICY_FORBIDDEN_CALL"),
    "import the project": ("import dressage_trainer", "POLICY_FORBIDDEN_CALL"),
    "open a file": ("open('/etc/passwd')", "POLICY_RAISED"),
    "read a file by numpy": ("np.fromfile('/etc/passwd', 'u1')", "POLICY_RAISED"),
    "write a file by numpy": ("np.ones(3).tofile('/tmp/x')", "POLICY_RAISED"),
    "fork": (f"{REAL}; real['fork']()", "POLICY_FORBIDDEN_CALL"),
    "execute": (f"{REAL}; real['execv']('/bin/sh', ['sh'])", "POLICY_FORBIDDEN_CALL"),
    "kill the trainer": (f"{REAL}; real['kill'](real['getppid'](), 9)", "POLICY_FORBIDDEN_CALL"),
    "list a folder": (f"{REAL}; real['listdir']('/etc')", "POLICY_FORBIDDEN_CALL"),
    "end the process": (f"{REAL}; real['_exit'](0)", "POLICY_CRASHED"),
    "crash": ("np.ctypeslib.ctypes.string_at(0)", "POLICY_CRASHED"),
    "write into the channel": (f"{REAL}; [real['write'](f, b'x' * 99) for f in range(3, 9)]", None),
    "close the channel": (f"{REAL}; real['closerange'](3, 65536); return 0", "POLICY_CRASHED"),
    "flood the output": (
        f"{REAL}\n        for _ in range(3000): real['write'](1, b'x' * 10**6)",
        "POLICY_TOO_SLOW",
    ),
}


@pytest.mark.parametrize("name", EXPLOITS)
def test_an_exploit_behind_the_lint_reaches_nothing(name, tmp_path):
    body, reason = EXPLOITS[name]
    begin = time.monotonic()
    with pytest.raises(PolicyFailure) as raised:
        play(tmp_path, policy(body), lint=False)
    assert time.monotonic() - begin < 30
    if reason is None:  # depends on which part of it the reader takes first
        assert raised.value.reason.startswith("POLICY_")
    else:
        assert raised.value.reason == reason, raised.value.message
    assert list(tmp_path.iterdir()) == []


def opens(path) -> str:
    """Return a policy that opens a file behind the lint."""
    return policy(f"{REAL}; real['close'](real['open']({str(path)!r}, 0)); return 1")


@contextmanager
def trainers(tmp_path):
    """The process of a policy as a trainer starts it."""
    sandboxes = Sandboxes(tmp_path)
    running = sandboxes.start(code_player.SANDBOX, PLAY)
    try:
        yield PolicyHost(running, TimeBudget(60.0))
    finally:
        sandboxes.end(running)


WORLD = Path(boards.__file__).parent


@pytest.mark.parametrize("name", ["rules.py", "__pycache__", "NoiseWorld1-v0/trajectories/random_0.npz"])
def test_the_hidden_boards_cannot_be_read_behind_the_lint(name, tmp_path):
    hidden = Path(py_compile.compile(boards.__file__)) if name == "__pycache__" else WORLD / name
    for path, readable in ((WORLD / "__init__.py", True), (hidden, False)):
        assert path.is_file()
        with trainers(tmp_path) as host:
            host.load(opens(path), CART, limits=PlayLimits(), lint=False)
            host.begin(1)
            if readable:
                assert host.act(ROWS[:1], [0]).tolist() == [1]
                continue
            with pytest.raises(PolicyFailure, match="PermissionError"):
                host.act(ROWS[:1], [0])


def test_the_hidden_boards_cannot_be_read_from_python_either(monkeypatch):
    path, load = boards.__file__, PolicyHost.load
    monkeypatch.setattr(PolicyHost, "load", lambda *given, **named: load(*given, **{**named, "lint": False}))
    bundle = CodePolicy(source=opens(path), environment="CartPole-v1", observation_size=4, num_actions=2)
    with SandboxedPolicy(bundle) as acting, pytest.raises(PolicyFailure, match="PermissionError"):
        acting.act(ROWS[0])


def test_the_hidden_boards_cannot_be_read_by_a_check(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for path, error in ((boards.__file__, "PermissionError"), (contracts.__file__, "")):
        reply = contracts_host._run("lintless_target:read", {"path": path}, tmp_path, CHECK_LIMITS, False)
        assert reply == {"error": error}


def test_a_large_batch_of_quick_actions_is_not_slow(tmp_path):
    source = policy("\n        for _ in range(100_000): pass\n        return 0")
    actions, _ = play(tmp_path, source, rows=np.zeros((300, 4)), act_seconds=0.5)
    assert actions.tolist() == [0] * 300


@pytest.mark.parametrize("limits", [dict(episode_seconds=0.5), dict(candidate_seconds=1.0)])
def test_episode_and_candidate_have_limits_of_their_own(limits, tmp_path):
    source = policy("\n        for _ in range(300_000): pass\n        return 0")
    with pytest.raises(PolicyFailure) as raised:
        play(tmp_path, source, steps=1000, act_seconds=5.0, **limits)
    assert raised.value.reason == "POLICY_TOO_SLOW"


def test_feedback_is_text_of_bounded_length(tmp_path):
    source = "class Feedback:\n    def summarize_trajectory(self, observations):\n        return str(len(observations)) * 900\n"
    with process(tmp_path, FEEDBACK) as running:
        host = FeedbackHost(running, TimeBudget(20.0))
        host.load(source, CART, limits=PlayLimits())
        text = host.summarize(ROWS)
        assert len(text) == 500 and text.startswith("333")
    with process(tmp_path, FEEDBACK) as running:
        host = FeedbackHost(running, TimeBudget(20.0))
        host.load(source.replace("str(", "float("), CART, limits=PlayLimits())
        with pytest.raises(PolicyFailure) as raised:
            host.summarize(ROWS)
    assert raised.value.failure.rule == "return-type"
