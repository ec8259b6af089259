"""Cards and check trajectories, generated from the live environments.

``python -m dressage.envs.generate`` writes them into the package; ``--check`` writes nothing and exits with 1 when a
card on disk is not what the live environment gives. Measured scales may differ by a few per cent between CPU types,
since the dynamics are chaotic; everything else must be equal.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dressage.envs.cards import (
    REWARD_ENVIRONMENT_IDS,
    SEARCH_ENVIRONMENT_IDS,
    EnvironmentCard,
    OptionValue,
    load_card,
)
from dressage.envs.catalogue import Entry, catalogue
from dressage.envs.layout import layout_of
from dressage.envs.options import EnvOptions
from dressage.envs.plain import is_plain, plain
from dressage.envs.stock import make_by_id
from dressage.envs.tasks import is_simulated
from dressage.envs.tasks import task as task_of
from dressage.envs.tasks.base import Task
from dressage.envs.trajectory import CHECK_KINDS, Trajectory
from dressage.envs.vector import Adapter

_EPISODES = 20
_CHECK_STEPS = 150
_SEEDS = (11, 12)
CHECK_EPISODES = len(CHECK_KINDS) * len(_SEEDS)
"""Check episodes of an environment, a file each."""
_TOLERANCE = 0.1
_RESTING_STEPS = 20
# Of a small environment a sample of observations is enough, since no reward is checked on it.
_PLAIN_CHECK_STEPS = 50
# Numbers in a check episode at most: a robot whose observation is long gets a shorter one.
_CHECK_NUMBERS = 30_000
_OPTION_NAMES = ("terminate_when_unhealthy", "reset_noise_scale")


def build_card(env_id: str, *, measure: bool = True) -> EnvironmentCard:
    """Return the card of the live environment.

    :param measure: run the episodes that give the scales; without, they are left empty.
    """
    env = make_by_id(env_id)
    if env.spec.max_episode_steps is None:
        raise SystemExit(f"{env_id} has no time limit")
    steps = int(env.spec.max_episode_steps)
    stock: Any = env.unwrapped
    if is_plain(env_id):
        card = card_of_plain(env_id, env, max_episode_steps=steps)
    elif not is_simulated(env_id):
        module = importlib.import_module(catalogue()[env_id].module)
        card = module.build_card(env_id, stock, max_episode_steps=steps)
    else:
        options = {"max_episode_steps": steps, **_options(type(stock))}
        card = card_of_task(task_of(env_id), stock.model, time_step=float(stock.dt), options=options)
        _verify(card, stock)
    entry = catalogue()[env_id]
    card = replace(card, methods=entry.methods, target=_target(entry, env.spec.reward_threshold))
    env.close()
    return with_scales(card) if measure else card


def _target(entry: Entry, registered: float | None) -> float | None:
    target = registered if entry.target is None else entry.target
    return None if target is None or math.isinf(target) else float(target)


def card_of_plain(env_id: str, env: Any, *, max_episode_steps: int) -> EnvironmentCard:
    """Return the card of an environment without MuJoCo, scales left out.

    :raises SystemExit: where its words do not fit the live environment.
    """
    entry, adapter = plain(env_id), Adapter(env, env_id)
    live = {name: float(getattr(env.unwrapped, name)) for name in entry.constants}
    if live != entry.constants:
        raise SystemExit(f"{env_id}: numbers of the live environment have changed: {live}")
    counts = (adapter.num_observations, adapter.num_actions, adapter.size)
    if counts != (entry.num_observations, entry.num_actions, entry.observation_size):
        raise SystemExit(f"{env_id}: (observations, actions, observation size) of the live environment is {counts}")
    bounds = ([part.low for part in entry.action], [part.high for part in entry.action])
    if bounds != (adapter.low.tolist(), adapter.high.tolist()):
        raise SystemExit(f"{env_id}: the action bounds are not the action space's")
    return EnvironmentCard(
        id=env_id,
        title=entry.title,
        description=entry.description,
        fields=tuple(bound.field for bound in entry.bound),
        observation_components=entry.observation_components,
        action=entry.action,
        action_kind="discrete" if entry.num_actions else "box",
        num_actions=entry.num_actions,
        num_observations=entry.num_observations,
        observation_size=entry.observation_size,
        time_step=entry.time_step,
        max_episode_steps=max_episode_steps,
        can_terminate=True,
        termination=entry.termination,
        stock_reward=entry.stock_reward,
        example_intents=entry.example_intents,
        options={"max_episode_steps": max_episode_steps},
    )


def card_of_task(task: Task, model: Any, *, time_step: float, options: Mapping[str, OptionValue]) -> EnvironmentCard:
    """Return the card of a task on a live model, scales left out."""
    layout = layout_of(model)
    components = task.observation_components(layout)
    return EnvironmentCard(
        id=task.env_id,
        title=task.title,
        description=task.description,
        fields=tuple(entry.field for entry in task.fields(layout)),
        observation_components=components,
        action=task.action(layout),
        action_kind="box",
        observation_size=len(components),
        time_step=time_step,
        max_episode_steps=int(options["max_episode_steps"]),
        can_terminate=task.can_terminate,
        termination=task.termination,
        stock_reward=task.stock_reward,
        example_intents=task.example_intents,
        options=dict(options),
        cameras=cameras_of(model),
    )


def cameras_of(model: Any) -> tuple[str, ...]:
    """Return the names of a MuJoCo model's cameras; those without a name cannot be chosen."""
    return tuple(filter(None, (model.camera(index).name for index in range(model.ncam))))


def with_scales(card: EnvironmentCard, *, episodes: int = _EPISODES) -> EnvironmentCard:
    """Return the card with its scales measured. It must be on disk already, without them.

    :param episodes: of the random policy.
    """
    return replace(card, scales=_scales(card, episodes))


def _options(kind: Any) -> dict[str, OptionValue]:
    parameters = inspect.signature(kind).parameters
    return {name: parameters[name].default for name in _OPTION_NAMES if name in parameters}


def _verify(card: EnvironmentCard, stock: Any) -> None:
    """Check a task's description against the live environment."""
    if card.observation_size != int(stock.observation_space.shape[0]):
        raise SystemExit(f"{card.id}: {len(card.observation_components)} observation components described")
    low = np.array([part.low for part in card.action], dtype=np.float32)
    high = np.array([part.high for part in card.action], dtype=np.float32)
    if not (np.array_equal(low, stock.action_space.low) and np.array_equal(high, stock.action_space.high)):
        raise SystemExit(f"{card.id}: the action bounds are not the action space's")


def _scales(card: EnvironmentCard, episodes: int) -> dict[str, float]:
    """Return reference numbers, from stock episodes of a random and of a motionless policy."""
    seeds = range(1000, 1000 + episodes)
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
        height = _resting(still, "z_position")
        if stands_as := _stands_as(card.id):
            scales["lying_height"] = height
            standing = _episodes(load_card(stands_as), "motionless", range(1000, 1003), 1)
            scales["standing_head_height"] = _resting(standing, "head_height")
            height = _resting(standing, "z_position")
        gravity = _gravity(card.id)
        # What falls for ever, or floats, does not stand: the scales that rest on standing are left out.
        if height > 0 and gravity > 0:
            scales["standing_height"] = height
            # Froude number 1: a brisk run for a body of this size.
            scales["typical_speed"] = math.sqrt(gravity * height)
    return {name: float(f"{value:.4g}") for name, value in scales.items()}


def _gravity(env_id: str) -> float:
    """Return the acceleration of a falling body, in m/s² downwards; 0 where the model turns gravity off."""
    import mujoco

    options = task_of(env_id).load().opt
    off = options.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY
    return 0.0 if off else -float(options.gravity[2])


def _stands_as(env_id: str) -> str:
    return task_of(env_id).stands_as if is_simulated(env_id) else ""


def _resting(still: Sequence[Trajectory], field: str) -> float:
    """Return a field's value in motionless episodes: where a robot stays up, after it settled; where it falls, at the start."""
    lasting = all(episode.truncated and episode.num_steps > _RESTING_STEPS for episode in still)
    rows = slice(-_RESTING_STEPS, None) if lasting else slice(0, 1)
    return _mean([float(episode.fields[field][rows].mean()) for episode in still])


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _episodes(card: EnvironmentCard, kind: str, seeds: Sequence[int], steps: int | None = None) -> list[Trajectory]:
    from dressage.envs import reference

    options = EnvOptions(max_episode_steps=steps)
    episodes = []
    for seed in seeds:
        if kind == "random":
            policy = reference.random_policy(card.id, seed)
        elif kind == "untrained":
            policy = reference.untrained_policy(card.id, seed)
        else:
            policy = reference.motionless_policy(card.id)
        episodes += reference.rollout(policy, card.id, [seed], options)
    return episodes


def write(env_id: str) -> None:
    """Write the card, then the check trajectories of one environment."""
    path = catalogue()[env_id].card_file
    # Policies and recordings read the card, so it is written twice: first without scales.
    path.write_text(card_text(build_card(env_id, measure=False)), "utf-8")
    card = build_card(env_id)
    path.write_text(card_text(card), "utf-8")
    write_check_episodes(card, catalogue()[env_id].trajectories)


def write_check_episodes(card: EnvironmentCard, folder: Path) -> None:
    """Record the episodes on which rewards and judges are checked."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in CHECK_KINDS:
        for index, episode in enumerate(_episodes(card, kind, _check_seeds(card), _check_steps(card))):
            episode.save(folder / f"{kind}_{index}.npz", compress=True)


def _check_seeds(card: EnvironmentCard) -> Sequence[int]:
    return _SEEDS if "reward" in card.methods else _SEEDS[:1]


def _check_steps(card: EnvironmentCard) -> int:
    if "reward" not in card.methods:
        return _PLAIN_CHECK_STEPS
    width = sum(math.prod(entry.shape) for entry in card.fields)
    return min(_CHECK_STEPS, _CHECK_NUMBERS // width)


def differences(env_id: str) -> list[str]:
    """Return the differences between the card on disk and the live environment; empty when it is current."""
    try:
        on_disk = json.loads(catalogue()[env_id].card_file.read_text("utf-8"))
    except FileNotFoundError:
        return [f"{env_id}: no card on disk"]
    live = json.loads(card_text(build_card(env_id)))
    old, new = on_disk.pop("scales", {}), live.pop("scales")
    lines = [f"{env_id}: {key} differs" for key in {*on_disk, *live} if on_disk.get(key) != live.get(key)]
    for name in {*old, *new}:
        was, now = old.get(name, math.nan), new.get(name, math.nan)
        if not math.isclose(was, now, rel_tol=_TOLERANCE, abs_tol=1e-3):
            lines.append(f"{env_id}: scale {name} is {was} on disk, {now} live")
    return sorted(lines)


def card_text(card: EnvironmentCard) -> str:
    """Return the card as it is kept in a file, without the clips that are not set."""
    data = card.to_dict()
    for component in data["observation_components"]:
        if component["clip"] is None:
            del component["clip"]
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dressage.envs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, exit with 1 on a difference")
    ids = [*REWARD_ENVIRONMENT_IDS, *SEARCH_ENVIRONMENT_IDS]
    parser.add_argument("ids", nargs="*", default=ids, help="environments (default: all, without those of packs)")
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        for env_id in chosen.ids:
            write(env_id)
        return 0
    lines = [line for env_id in chosen.ids for line in differences(env_id)]
    print("\n".join(lines) or "cards are current")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
