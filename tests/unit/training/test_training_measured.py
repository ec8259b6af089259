"""Measured sessions: what a plan expects of an intent of their class."""

from __future__ import annotations

import pytest
from dressage.envs.cards import list_cards
from dressage.training.measured import measured_session, sessions
from dressage.training.preset import load_preset
from dressage_orchestrator.methods.reward import spec
from dressage_orchestrator.methods.reward.method import RewardMethod

from tests.fakes.specs import reward_session

DOUBLE = "InvertedDoublePendulum-v5"


@pytest.mark.parametrize("entry", sessions(), ids=lambda entry: entry.environment)
def test_a_measured_session_is_that_of_its_own_intent(entry):
    assert entry.environment in {card.id for card in list_cards()} and entry.source
    assert measured_session(entry.environment, entry.intent) == entry
    assert 0 < entry.steps <= spec.MOST_FACTOR * load_preset(entry.environment).steps_per_member
    assert entry.seeds >= 1 and entry.core_seconds > 0


def estimate(intent="balance both poles", **more):
    full = reward_session(intent=intent, environment=f"environments/{DOUBLE}", **more)
    spec.fill(full)
    method = RewardMethod()
    part = method.estimate(full, episode_steps=1000)

    def seconds(of, known=None, cores=2):
        return method.seconds(full, of, cores=cores, known=known)

    return part, seconds


def test_the_plan_expects_what_was_measured_and_states_the_largest():
    part, seconds = estimate()
    (entry,) = [session for session in sessions() if session.environment == DOUBLE]
    assert part.measured == f"'balance the pole upright' passed after {entry.steps:,} steps of each of 2 seeds"
    assert seconds(part) == pytest.approx(entry.core_seconds / 2 * 3 / 2)  # three seeds on two cores
    assert part.longest().env_steps == 4 * part.env_steps == 3 * 400_000
    assert seconds(part.longest()) > 2 * seconds(part)
    assert seconds(part, known=1000.0) == pytest.approx(3 * entry.steps / 1000 + 10)  # this machine's speed


@pytest.mark.parametrize(
    "more",
    [
        {"intent": "spin"},
        {"early_stop": False},
        {"reward_source": "x"},
        {"max_steps_per_member": 1000},
        {"backend": "sb3"},
    ],
)
def test_sessions_that_train_otherwise_are_not_compared_with_it(more):
    part, seconds = estimate(**more)
    assert not part.measured and seconds(part) > 0
