"""A card as the roles of the search methods show it: what a policy observes, what it may do, and what an episode pays.

`dressage.envs.describe` describes the state of many environments at once, for rewards and judges. A policy that is searched or
written sees one observation at a time and nothing else of the state. How the environment moves is in no card, so it is in no
prompt.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import groupby

from dressage.envs.cards import EnvironmentCard

_WIDTH = 380
_ONE_HOT = re.compile(r"one-hot: 1 at (.*), else 0")
# Scales that describe returns; others are for judges.
_SCALES = {"random_return": "Mean return of uniformly random actions", "motionless_return": "Return without motion"}


def describe_episodes(card: EnvironmentCard, *, horizon: int = 0, one_hot: bool = False) -> str:
    """Return a card as plain text.

    :param horizon: maximum number of steps of an episode; 0: the card's.
    :param one_hot: whether the policy sees a discrete observation as its one-hot vector, instead of an integer.
    """
    lines = [
        f"{card.id}: {card.title}",
        *textwrap.wrap(card.description, _WIDTH),
        "",
        f"An episode has at most {horizon or card.max_episode_steps} steps{_duration(card)}.",
        f"Termination: {card.termination}",
        f"Reward: {card.stock_reward}",
        *(f"{words}: {card.scales[name]:g}" for name, words in _SCALES.items() if name in card.scales),
        "",
        *(_integer(card) if card.num_observations and not one_hot else _observation(card)),
        "",
        *_action(card),
    ]
    return "\n".join(lines) + "\n"


def _duration(card: EnvironmentCard) -> str:
    """The duration of a step; environments without a clock have steps of 1 s."""
    return "" if card.time_step == 1 else f" of {card.time_step:g} s each"


def _integer(card: EnvironmentCard) -> Iterator[str]:
    """A discrete observation, whose components in the card are those of its one-hot vector."""
    group = card.observation_components[0].group if card.observation_components else ""
    index = _ONE_HOT.fullmatch(group)
    meaning = f": {index[1]}" if index else ""
    yield f"Observation: an integer from 0 to {card.num_observations - 1}{meaning}"


def _observation(card: EnvironmentCard) -> Iterator[str]:
    yield f"Observation: {card.observation_size} numbers"
    numbered = enumerate(card.observation_components)
    for group, run in groupby(numbered, key=lambda pair: pair[1].group or pair[0]):
        entries = list(run)
        index, first = entries[0]
        clip = f", clipped to ±{first.clip:g}" if first.clip is not None else ""
        if isinstance(group, int):
            yield f"  [{index}] {first.name} ({first.unit}{clip}) — {first.meaning}"
        else:
            yield f"  [{index}]–[{entries[-1][0]}] {group}{clip}; {first.name} … {entries[-1][1].name}"


def _action(card: EnvironmentCard) -> Iterator[str]:
    if card.action_kind == "discrete":
        yield f"Action: an integer from 0 to {card.num_actions - 1}"
        yield from (f"  {part.meaning}" for part in card.action)
        return
    yield f"Action: {card.action_size} number{'s' if card.action_size > 1 else ''}"
    for index, part in enumerate(card.action):
        yield f"  [{index}] {part.name} in [{part.low:g}, {part.high:g}] {part.unit} — {part.meaning}"
