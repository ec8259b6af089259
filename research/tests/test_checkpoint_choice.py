"""The comparison of checkpoints chooses as a session does, and its interval is that of a mean over trainings."""

from __future__ import annotations

from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1

from research import checkpoint_choice as tool


def training(*checkpoints):
    member = v1.Member(name="sessions/s/iterations/1/assignments/train/members/a-s0", policy="p")
    for place, scores in enumerate(checkpoints, start=1):
        evaluation = member.evaluations.add(env_step=100 * place)
        for score in scores:
            evaluation.rollouts.add().judgment.score = score
    spec = v1.SessionSpec(intent="hop", reward=v1.RewardSpec(evaluation_episodes=4))
    return tool.training_of(member, spec, judge="judge", folder=Path("store"))


@pytest.mark.parametrize(("on_search_seeds", "step"), [({100: 0.6, 200: 0.5}, 100), ({100: 0.4, 200: 0.5}, 200)])
def test_the_best_is_chosen_only_if_it_is_better_on_search_seeds(monkeypatch, on_search_seeds, step):
    fell = training((0.8, 0.6), (0.2, 0.4))
    assert fell.marks == ((100, pytest.approx(0.7)), (200, pytest.approx(0.3))) and fell.best == 100
    seeds = []
    monkeypatch.setattr(tool, "score", lambda _, mark, played: seeds.append(played) or on_search_seeds[mark])
    assert tool.chosen(fell) == step and set(seeds) == {range(1_000_000, 1_000_004)}


def test_a_last_checkpoint_that_is_the_best_is_kept():
    rose = training((0.2, 0.4), (0.8, 0.6))
    assert rose.best is None and tool.chosen(rose) == rose.last == 200
