"""The examples of docs/contracts.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dressage.contracts import check_judge_in_sandbox, check_reward_in_sandbox
from dressage.envs.cards import load_card
from dressage.envs.trajectory import load_check_trajectories

ENVIRONMENT = "HalfCheetah-v5"
PAGE = Path(__file__).parents[3] / "docs" / "contracts.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
JUDGES = [block for block in BLOCKS if "def judge(" in block]
REWARDS = [block for block in BLOCKS if block not in JUDGES]


def test_there_are_examples_of_each_form() -> None:
    assert len(JUDGES) == 1
    assert sum("MEMORY" in block for block in REWARDS) == 1
    assert sum("RewardFunction" in block for block in REWARDS) == 1
    assert len(REWARDS) == 3


@pytest.mark.parametrize("source", REWARDS, ids=range(len(REWARDS)))
def test_every_reward_passes_the_check(source: str, tmp_path: Path) -> None:
    episodes = [episode for group in load_check_trajectories(ENVIRONMENT).values() for episode in group]
    report = check_reward_in_sandbox(source, load_card(ENVIRONMENT), episodes, scratch=tmp_path)
    assert report.ok, report.failures
    assert report.latex
    assert report.style == ("per_step" if "RewardFunction" in source else "vectorised")


def test_the_judge_passes_the_check_and_fails_its_null_controls(tmp_path: Path) -> None:
    controls = load_check_trajectories(ENVIRONMENT)
    controls["time_reversed"] = [episode.reverse_time() for episode in controls["untrained"]]
    report = check_judge_in_sandbox(
        JUDGES[0], load_card(ENVIRONMENT), controls, nulls=tuple(controls), scratch=tmp_path
    )
    assert report.ok, report.failures
    assert max(score for scores in report.scores.values() for score in scores) < 0.5
