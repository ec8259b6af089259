"""The guide's list of environments is that of the cards, and the contracts page names the fields that they have."""

from __future__ import annotations

import re
from pathlib import Path

from dressage.envs import ENVIRONMENT_IDS, PROGRAM_ENVIRONMENT_IDS, load_card
from dressage.envs.cards import EnvironmentCard

DOCS = Path(__file__).parents[3] / "docs"


def _row(card: EnvironmentCard) -> str:
    actions = f"one of {card.num_actions}" if card.num_actions else str(card.action_size)
    episode = f"{card.max_episode_steps} × {card.time_step:g} s"
    return f"| {card.id} | {card.title} | {card.observation_size} | {actions} | {episode} |"


def test_the_guide_lists_every_environment_as_its_card_has_it() -> None:
    text = (DOCS / "guide.md").read_text("utf-8").partition("## Environments")[2].partition("\n## ")[0]
    cells = (line.split("|") for line in text.splitlines() if line.startswith("| "))
    rows = ["|".join(parts) for parts in cells if parts[1].strip() in ENVIRONMENT_IDS]
    assert rows == [_row(load_card(env_id)) for env_id in ENVIRONMENT_IDS if env_id not in PROGRAM_ENVIRONMENT_IDS]


def test_every_plain_field_of_the_contracts_page_exists() -> None:
    text = (DOCS / "contracts.md").read_text("utf-8").partition("## What code can see")[2].partition("\n## ")[0]
    named = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    fields = {name for env_id in ENVIRONMENT_IDS for name in load_card(env_id).field_names}
    assert {"pitch", "turned_yaw", "upright"} <= named
    assert named <= fields
