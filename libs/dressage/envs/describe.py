"""A card as plain text: compact, since a prompt pays for each line, and complete, since the model sees nothing else."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby

from dressage.envs.cards import EnvironmentCard, Field, ObservationComponent
from dressage.envs.options import EnvOptions

_WIDTH = 380
# Fields that exist once for each body or foot: one line describes all of them and lists their names.
_FAMILIES = ("xpos_", "xvel_", "contact_", "height_", "touching_")
_SCALE_UNITS = {"_steps": "steps", "_speed": "m/s", "_height": "m"}
_LAGGING = ("xpos_", "xvel_", "height_", "touching_", "contact_")


def describe(card: EnvironmentCard, options: EnvOptions | None = None) -> str:
    """Return plain-text table of a card; every line is at most a sentence.

    :param options: deviations from the stock environment, which the text describes as they are; None: none.
    """
    if not card.fields and "program" in card.methods:
        return _program_task(card)
    chosen = options or EnvOptions()
    steps = chosen.max_episode_steps or card.max_episode_steps
    noise = (
        ""
        if chosen.reset_noise_scale is None
        else f" Scale of the noise on the first state: {chosen.reset_noise_scale:g}."
    )
    lines = [
        f"{card.id}: {card.title}",
        *textwrap.wrap(card.description, _WIDTH),
        "",
        f"Time step: {card.time_step:g} s. Episode: at most {steps} steps ({steps * card.time_step:g} s).{noise}",
        f"Termination: {_termination(card, chosen)}",
        f"Stock reward (for reference): {card.stock_reward}",
        "",
        "State fields (N = number of environments; a trajectory has T+1 rows instead):",
        *_fields(card),
    ]
    lines += ["", *_action(card)]
    lines += ["", f"observation (N, {card.observation_size}), component by component:"]
    lines += _observation(card.observation_components)
    lines += ["", "Scales, measured on the live environment:"]
    lines += [f"  {name} = {value:g}{_unit_of_scale(name)}" for name, value in card.scales.items()]
    return "\n".join(lines) + "\n"


def _unit_of_scale(name: str) -> str:
    """Return the unit of a scale with a leading space; empty for a return."""
    return next((f" {unit}" for ending, unit in _SCALE_UNITS.items() if name.endswith(ending)), "")


def _unit(unit: str) -> str:
    """Return a unit with a leading space; empty for a number without one."""
    return f" {unit}" if unit != "1" else ""


def _termination(card: EnvironmentCard, options: EnvOptions) -> str:
    """Return when episodes end before their time limit, under the options."""
    if options.terminate_when_unhealthy is not False:
        return card.termination
    return (
        "switched off: an episode continues in every state, also after a fall or on the ground, up to its time limit. "
        f"(The stock environment: {card.termination})"
    )


def _program_task(card: EnvironmentCard) -> str:
    """Return the text of a task that programs solve: a program perceives tests, not a state."""
    lines = [
        f"{card.id}: {card.title}",
        *textwrap.wrap(card.description, _WIDTH),
        "",
        f"Time step: {card.time_step:g} s. Episode: at most {card.max_episode_steps} perceptions and actions.",
        f"Termination: {card.termination}",
        *textwrap.wrap(f"Return: {card.stock_reward}", _WIDTH),
        "",
        *_action(card),
    ]
    return "\n".join(lines) + "\n"


def _fields(card: EnvironmentCard) -> Iterator[str]:
    for _, run in groupby(card.fields, key=_kind):
        entries = list(run)
        first = entries[0]
        shape = ", ".join(("N", *map(str, first.shape))) if first.shape else "N,"
        if len(entries) == 1:
            yield f"  {first.name} ({shape}){_unit(first.unit)} — {first.meaning}"
            continue
        names = ", ".join(entry.name for entry in entries)
        family = next(prefix for prefix in _FAMILIES if first.name.startswith(prefix))
        body = first.name.removeprefix(family)
        text = f"each ({shape}){_unit(first.unit)} — {_generic(first.meaning, body)}: {names}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    if any(entry.name.startswith(_LAGGING) for entry in card.fields):
        yield "  (xpos_*, xvel_*, height_*, touching_* and contact_* lag by up to one physics substep, as in stock Gymnasium.)"


def _kind(entry: Field) -> tuple[object, ...]:
    """Return a key that is equal for the fields of one family that differ only by the body's name."""
    for prefix in _FAMILIES:
        if entry.name.startswith(prefix):
            body = entry.name.removeprefix(prefix)
            return prefix, entry.shape, entry.unit, _generic(entry.meaning, body)
    return (entry.name,)


def _generic(meaning: str, body: str) -> str:
    return meaning.replace(f" {body}", " it")


def _action(card: EnvironmentCard) -> Iterator[str]:
    if card.action_kind == "discrete":
        yield f"Action (discrete), shape (N,), an integer from 0 to {card.num_actions - 1}:"
        for part in card.action:
            yield f"  {part.meaning}"
        return
    yield f"Action ({card.action_kind}), shape (N, {card.action_size}):"
    for index, part in enumerate(card.action):
        yield f"  [{index}] {part.name} in [{part.low:g}, {part.high:g}]{_unit(part.unit)} — {part.meaning}"


def _observation(components: tuple[ObservationComponent, ...]) -> Iterator[str]:
    """Return a line for each component, or for each run of components of one group."""
    numbered = enumerate(components)
    for group, run in groupby(numbered, key=lambda pair: pair[1].group or pair[0]):
        entries = list(run)
        index, first = entries[0]
        clip = f", clipped to ±{first.clip:g}" if first.clip is not None else ""
        if isinstance(group, int):
            yield f"  [{index}] {first.name} ({first.unit}{clip}) — {first.meaning}"
            continue
        ends = f"{first.name} … {entries[-1][1].name}"
        yield f"  [{index}]–[{entries[-1][0]}] {group}{clip}; {ends}"
