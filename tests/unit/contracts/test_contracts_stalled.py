"""Scoring and judging of many episodes has a late deadline: a call that does not return is ended long before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dressage.contracts import CHECK_LIMITS, JudgeError, RewardError, host, run_judge_in_sandbox, score_in_sandbox
from dressage.envs.cards import load_card
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.heartbeat import CEILING_SECONDS

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

ENVIRONMENT = "InvertedPendulum-v5"
REWARD = """
LATEX = "1"
TERMS = {"up": "stay up"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    memory.steps = memory.steps + 1.0
    n = HANG if float(np.max(memory.steps)) > 3 else 0
    return {"up": 0.0 * next_state.time + 1.0 + n}
"""
JUDGE = """
def judge(trajectory, np):
    n = HANG if trajectory.num_steps > 0 else 0
    return {"score": 0.5, "criteria": {"c": 0.5}, "evidence": {"n": n}}
"""


@pytest.fixture
def episodes() -> list[Trajectory]:
    return load_check_trajectories(ENVIRONMENT)["random"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same rule with a lower ceiling, so that the tests are short; the deadline is that of hundreds of episodes."""
    limits = replace(CHECK_LIMITS, call_seconds=0.5, wall_seconds=300.0, cpu_seconds=600)
    monkeypatch.setattr(host, "CHECK_LIMITS", limits)
    return limits


@pytest.mark.parametrize("hang", ["sum(range(10**15))", "len(str(10**10**9))", "max(range(10**13))"])
def test_a_reward_that_stalls_while_it_scores(
    episodes: list[Trajectory], quick: Any, tmp_path: Path, hang: str
) -> None:
    with pytest.raises(RewardError) as caught:
        score_in_sandbox(REWARD.replace("HANG", hang), load_card(ENVIRONMENT), episodes, scratch=tmp_path)
    assert caught.value.rule == "time_budget" and caught.value.line == 8, caught.value.failure
    assert "has not returned" in caught.value.seen


def test_a_judge_that_stalls_on_an_episode(episodes: list[Trajectory], quick: Any, tmp_path: Path) -> None:
    with pytest.raises(JudgeError) as caught:
        run_judge_in_sandbox(JUDGE.replace("HANG", "sum(range(10**15))"), episodes, scratch=tmp_path, limits=quick)
    assert caught.value.rule == "time_budget" and caught.value.line == 3, caught.value.failure
    assert "has not returned" in caught.value.seen


def test_code_that_stalls_while_it_is_loaded(episodes: list[Trajectory], quick: Any, tmp_path: Path) -> None:
    source = JUDGE.replace("HANG", "0") + "\nM = sum(range(10**15))\n"
    with pytest.raises(JudgeError) as caught:
        run_judge_in_sandbox(source, episodes, scratch=tmp_path, limits=quick)
    assert (caught.value.rule, caught.value.line) == ("time_budget", 6), caught.value.failure
    assert "has not returned" in caught.value.seen


def test_each_scoring_has_the_limit_of_a_call(episodes: list[Trajectory]) -> None:
    from dressage_judge.sandboxed import limits_for

    for limits in (host._scoring_limits(episodes), limits_for(None, seconds=20.0, rollouts=1000), CHECK_LIMITS):
        assert limits.call_seconds == CEILING_SECONDS < 60
