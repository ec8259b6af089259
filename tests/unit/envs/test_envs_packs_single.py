"""One environment of a batched simulator in Gymnasium's form."""

from __future__ import annotations

import pytest
from dressage.envs.packs.batched import single

from tests.unit.envs.test_envs_packs_batched import LIMIT, Drift

pytest.importorskip("gymnasium")


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> single.SingleEnv:
    monkeypatch.setattr(single, "make", lambda env_id, **given: Drift(env_id, **given))
    return single.SingleEnv("Drift", max_episode_steps=None, bound=5.0)


def test_an_ended_episode_shows_its_own_last_state(env: single.SingleEnv) -> None:
    start = env.reset(seed=3)[0]
    observation, reward, terminated, truncated, _ = env.step([2.0])
    assert observation == pytest.approx(start + 2.0, abs=1e-6) and (terminated, truncated) == (True, False)
    assert env.fields()["position"] == observation and reward == pytest.approx(float(abs(observation[0])))


def test_limits_share_one_simulation_and_seeds_repeat(env: single.SingleEnv) -> None:
    short, whole = single.LimitedEnv(env, 2), single.LimitedEnv(env, LIMIT)
    first = short.reset(seed=4)[0]
    assert [short.step([0.0])[3] for _ in range(2)] == [False, True]
    assert whole.reset(seed=4)[0] == first
    assert [whole.step([0.0])[3] for _ in range(LIMIT)] == [False] * (LIMIT - 1) + [True]
    assert short.facts.max_episode_steps == 2 and whole.unwrapped is whole
    assert short.reset(seed=5)[0] != first
