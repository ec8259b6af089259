"""A card as plain text: compact, because a language model pays for each line, and complete, because it sees no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dressage.envs.cards import EnvironmentCard


def describe(card: EnvironmentCard) -> str:
    """Plain-text table of a card; every line is at most a sentence."""
    episode = card.max_episode_steps * card.time_step
    lines = [
        f"{card.id}: {card.title}",
        card.description,
        "",
        f"Time step: {card.time_step:g} s. Episode: at most {card.max_episode_steps} steps ({episode:g} s).",
        f"Termination: {card.termination}",
        f"Stock reward (for reference): {card.stock_reward}",
        "",
        "State fields (N = number of environments; a trajectory has T+1 rows instead):",
    ]
    for entry in card.fields:
        shape = ", ".join(("N", *map(str, entry.shape)))
        shape = shape if entry.shape else "N,"
        lines.append(f"  {entry.name} ({shape}) {entry.unit} — {entry.meaning}")
    lines.append("  (xpos_*, xvel_*, height_* and touching_* lag by up to one physics substep, as in stock Gymnasium.)")
    lines += ["", f"Action ({card.action_kind}), shape (N, {card.action_size}):"]
    for index, part in enumerate(card.action):
        lines.append(f"  [{index}] {part.name} in [{part.low:g}, {part.high:g}] {part.unit} — {part.meaning}")
    lines += ["", f"observation (N, {card.observation_size}), component by component:"]
    for index, component in enumerate(card.observation_components):
        clip = f", clipped to ±{component.clip:g}" if component.clip is not None else ""
        lines.append(f"  [{index}] {component.name} ({component.unit}{clip}) — {component.meaning}")
    lines += ["", "Scales, measured on the live environment:"]
    lines += [f"  {name} = {value:g}" for name, value in card.scales.items()]
    return "\n".join(lines) + "\n"
