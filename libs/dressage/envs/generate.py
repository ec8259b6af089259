"""Cards and check trajectories, generated from the live environments.

``python -m dressage.envs.generate`` writes them into the package; ``--check`` writes nothing and exits with 1 when a
card on disk is not what the live environment gives. Measured scales may differ by a few per cent between CPU types,
since the dynamics are chaotic; everything else must be equal.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dressage.envs.cards import ENVIRONMENT_IDS, EnvironmentCard, OptionValue
from dressage.envs.layout import layout_of
from dressage.envs.options import EnvOptions
from dressage.envs.tasks import task as task_of
from dressage.envs.trajectory import Trajectory

DATA = Path(__file__).parent / "data"
_EPISODES = 20
_CHECK_STEPS = 150
_SEEDS = (11, 12)
_TOLERANCE = 0.1
_OPTION_NAMES = ("terminate_when_unhealthy", "reset_noise_scale")


def build_card(env_id: str, *, measure: bool = True) -> EnvironmentCard:
    """The card of the live environment.

    :param measure: run the episodes that give the scales; without, they are left empty.
    """
    import gymnasium

    task = task_of(env_id)
    env = gymnasium.make(env_id)
    stock: Any = env.unwrapped
    layout = layout_of(stock.model)
    fields = tuple(entry.field for entry in task.fields(layout))
    steps = env.spec.max_episode_steps if env.spec is not None else None
    if steps is None:
        raise SystemExit(f"{env_id} has no time limit")
    card = EnvironmentCard(
        id=env_id,
        title=task.title,
        description=task.description,
        fields=fields,
        observation_components=task.observation_components(layout),
        action=task.action(layout),
        action_kind="box",
        observation_size=int(stock.observation_space.shape[0]),
        time_step=float(stock.dt),
        max_episode_steps=int(steps),
        can_terminate=task.can_terminate,
        termination=task.termination,
        stock_reward=task.stock_reward,
        example_intents=task.example_intents,
        options={"max_episode_steps": int(steps), **_options(type(stock))},
    )
    _verify(card, stock)
    env.close()
    return EnvironmentCard.from_dict({**card.to_dict(), "scales": _scales(card)}) if measure else card


def _options(kind: Any) -> dict[str, OptionValue]:
    parameters = inspect.signature(kind).parameters
    return {name: parameters[name].default for name in _OPTION_NAMES if name in parameters}


def _verify(card: EnvironmentCard, stock: Any) -> None:
    """What a task says about its environment must hold on the live one."""
    if card.observation_size != len(card.observation_components):
        raise SystemExit(f"{card.id}: {len(card.observation_components)} observation components described")
    low = np.array([part.low for part in card.action], dtype=np.float32)
    high = np.array([part.high for part in card.action], dtype=np.float32)
    if not (np.array_equal(low, stock.action_space.low) and np.array_equal(high, stock.action_space.high)):
        raise SystemExit(f"{card.id}: the action bounds are not the action space's")


def _scales(card: EnvironmentCard) -> dict[str, float]:
    """Reference numbers, from stock episodes of a random and of a motionless policy."""
    seeds = range(1000, 1000 + _EPISODES)
    noise = _episodes(card, "random", seeds)
    still = _episodes(card, "motionless", range(1000, 1003))
    scales = {
        "random_return": _mean([episode.stock_return for episode in noise]),
        "random_episode_steps": _mean([float(episode.num_steps) for episode in noise]),
        "motionless_return": _mean([episode.stock_return for episode in still]),
    }
    if "x_velocity" in card.field_names and "x_position" in card.field_names:
        travelled = [(e.x_position[-1] - e.x_position[0]) / (e.time[-1] - e.time[0]) for e in noise]
        scales["random_forward_speed"] = _mean([float(speed) for speed in travelled])
        scales["random_speed"] = _mean([float(np.abs(episode.x_velocity).mean()) for episode in noise])
    if "z_position" in card.field_names:
        # A robot that cannot end its episode settles to its standing height; one that falls has it at the start.
        rows = slice(0, 1) if card.can_terminate else slice(-20, None)
        height = _mean([float(episode.z_position[rows].mean()) for episode in still])
        gravity = 9.81
        scales["standing_height"] = height
        scales["typical_speed"] = math.sqrt(gravity * height)  # Froude number 1: a brisk run for a body of this size
    return {name: float(f"{value:.4g}") for name, value in scales.items()}


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _episodes(card: EnvironmentCard, kind: str, seeds: Sequence[int], steps: int | None = None) -> list[Trajectory]:
    from dressage.envs import reference

    options = EnvOptions(max_episode_steps=steps)
    found = []
    for seed in seeds:
        if kind == "random":
            policy = reference.random_policy(card.id, seed)
        elif kind == "untrained":
            policy = reference.untrained_policy(card.id, seed)
        else:
            policy = reference.motionless_policy(card.id)
        found += reference.rollout(policy, card.id, [seed], options)
    return found


def _card_path(env_id: str) -> Path:
    return DATA / "cards" / f"{env_id}.json"


def write(env_id: str) -> None:
    """Write the card, then the check trajectories of one environment."""
    path = _card_path(env_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Policies and recordings read the card, so it is written twice: first without scales.
    path.write_text(_text(build_card(env_id, measure=False)), "utf-8")
    card = build_card(env_id)
    path.write_text(_text(card), "utf-8")
    folder = DATA / "trajectories" / env_id
    folder.mkdir(parents=True, exist_ok=True)
    from dressage.envs.trajectory import CHECK_KINDS

    for kind in CHECK_KINDS:
        for index, episode in enumerate(_episodes(card, kind, _SEEDS, _CHECK_STEPS)):
            episode.save(folder / f"{kind}_{index}.npz", compress=True)


def differences(env_id: str) -> list[str]:
    """How the card on disk differs from the live environment; empty when it is current."""
    try:
        on_disk = json.loads(_card_path(env_id).read_text("utf-8"))
    except FileNotFoundError:
        return [f"{env_id}: no card on disk"]
    live = build_card(env_id).to_dict()
    old, new = on_disk.pop("scales", {}), live.pop("scales")
    found = [f"{env_id}: {key} differs" for key in {*on_disk, *live} if on_disk.get(key) != live.get(key)]
    for name in {*old, *new}:
        was, now = old.get(name, math.nan), new.get(name, math.nan)
        if not math.isclose(was, now, rel_tol=_TOLERANCE, abs_tol=1e-3):
            found.append(f"{env_id}: scale {name} is {was} on disk, {now} live")
    return sorted(found)


def _text(card: EnvironmentCard) -> str:
    return json.dumps(card.to_dict(), indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dressage.envs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, exit with 1 on a difference")
    parser.add_argument("ids", nargs="*", default=list(ENVIRONMENT_IDS), help="environments (default: all)")
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        for env_id in chosen.ids:
            write(env_id)
        return 0
    found = [line for env_id in chosen.ids for line in differences(env_id)]
    print("\n".join(found) or "cards are current")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
