"""Which episodes of an evaluation are recorded: three by return, or all, so that policies can be compared seed by seed."""

from __future__ import annotations

from dressage_trainer.evaluation.rollouts import labelled


def test_all_episodes_are_recorded_once_on_request():
    returns = [5.0, 1.0, 9.0, 3.0, 7.0]
    three = labelled(returns, every=False)
    assert three == {"p10": 1, "median": 0, "p90": 2}
    every = labelled(returns, every=True)
    assert every == three | {"episode4": 3, "episode5": 4} and sorted(every.values()) == list(range(5))
