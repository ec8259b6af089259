"""All rewards of the template author compile for a device; there they give numpy's numbers and rank episodes alike."""

from __future__ import annotations

import pytest
from dressage_llm_agent.template.author import write_reward
from test_template_code import ALL, brief_of

from tests.unit.contracts.on_device import returns_on_both

ENVIRONMENTS = sorted({environment for environment, _ in ALL})


def rewards_of(environment: str) -> list[str]:
    texts = [text for known, text in ALL if known == environment]
    return sorted({write_reward(brief_of(text, environment)).source for text in texts})


def test_the_template_author_writes_many_different_rewards() -> None:
    assert sum(len(rewards_of(environment)) for environment in ENVIRONMENTS) >= 100


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_rewards_of_the_template_author_agree_on_a_device(environment: str) -> None:
    returns_on_both(environment, rewards_of(environment))
