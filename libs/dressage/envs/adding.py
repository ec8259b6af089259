"""Describing custom environments: from a model file or a Gymnasium id to a folder that `dressage.envs.custom` reads.

This runs on the user's machine and files, with the simulator at hand. Everything in a card comes from the compiled model or
the live environment.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dressage.envs import custom
from dressage.envs.cards import ActionComponent, EnvironmentCard, ObservationComponent
from dressage.envs.generate import (
    CHECK_EPISODES,
    cameras_of,
    card_of_task,
    card_text,
    with_scales,
    write_check_episodes,
)
from dressage.envs.loading import quiet_loading
from dressage.envs.xml_models import keep_xml
from dressage.errors import InvalidArgument

_TIME_STEP = 0.02
_EPISODE_STEPS = 1_000
_EPISODES = 4
_MAX_EPISODE_STEPS = 1_000_000
_RESET_NOISE = 0.01


def add_model(
    path: Path,
    *,
    name: str = "",
    time_step: float | None = None,
    max_episode_steps: int = _EPISODE_STEPS,
    notify: Callable[[str], None] = lambda text: None,
) -> EnvironmentCard:
    """Describe a model in MuJoCo's XML and keep it, with what it includes, as ``mjcf:NAME``. One of that name is replaced.

    :param name: letters, digits, ``_``, ``.``, ``-``; empty: the file's name.
    :param time_step: seconds between actions, rounded to the physics time step; None: about 0.02.
    :param notify: is called with a sentence about something that the environment will lack.
    :raises InvalidArgument: for a file that MuJoCo does not compile, one without actuators, a bad number or name.
    """
    import mujoco

    if not 1 <= max_episode_steps <= _MAX_EPISODE_STEPS:
        expected = f"an integer from 1 to {_MAX_EPISODE_STEPS}"
        raise InvalidArgument(field="max_episode_steps", value=max_episode_steps, expected=expected)
    if not path.is_file():
        raise InvalidArgument(
            field="model", problem="not found", value=str(path), expected="the file of a MuJoCo model"
        )
    env_id = custom.MODEL + (name or path.stem)
    folder = custom.folder_of(env_id)
    try:
        with quiet_loading():
            model = mujoco.MjModel.from_xml_path(str(path))
    except (ValueError, OSError) as error:
        expected = f"a model file that MuJoCo compiles ({error})"
        raise InvalidArgument(field="model", value=str(path), expected=expected) from error
    if model.nu == 0:
        raise InvalidArgument(field="model", value=str(path), expected="a model with at least one actuator")
    step = _action_time(float(model.opt.timestep), time_step)
    with replacing(folder) as new:
        mujoco.mj_saveModel(model, str(new / custom.MODEL_FILE))
        not_kept = keep_xml(path, new / custom.XML_FILE)
        if not_kept:
            notify(f"the console cannot show {env_id} in 3D: {not_kept}")
        from dressage.envs.tasks import task

        options = {"max_episode_steps": max_episode_steps, "reset_noise_scale": _RESET_NOISE}
        card = card_of_task(task(env_id), model, time_step=step, options=options)
        return _finish(card, new)


def add_registered(env_id: str) -> EnvironmentCard:
    """Describe an environment that is registered with Gymnasium and keep its card as ``gymnasium:ID``.

    :param env_id: ``gymnasium:ID``, or ``gymnasium:MODULE:ID`` in a sandboxed process.
    :raises NotFound: when no such id is registered.
    :raises InvalidArgument: for one whose observation or action a trainer cannot use.
    """
    from dressage.envs.vector import Adapter, bound_fields, make_registered

    folder = custom.folder_of(env_id)
    env = make_registered(env_id, None)
    try:
        adapter, steps = Adapter(env, env_id), env.spec.max_episode_steps or _EPISODE_STEPS
        card = EnvironmentCard(
            id=env_id,
            title=_title(env_id),
            description=(
                "An environment of Gymnasium or of a package that registers with it. It runs through a plain adapter, one "
                "environment after another in Python, so training is much slower than in the batched environments, and "
                "rewards and judges can read its observation only."
            ),
            fields=(),
            observation_components=tuple(
                ObservationComponent(f"observation_{index}", "mixed", f"number {index} of the observation")
                for index in range(adapter.size)
            ),
            action=_actions(adapter),
            action_kind="discrete" if adapter.num_actions else "box",
            num_actions=adapter.num_actions,
            observation_size=adapter.size,
            time_step=_seconds(env),
            max_episode_steps=int(steps),
            can_terminate=True,
            termination="as the environment decides.",
            stock_reward="as the environment computes it",
            example_intents=("get a high stock reward",),
            options={"max_episode_steps": int(steps)},
            num_observations=adapter.num_observations,
            methods=("reward", "parameters", "code"),
            target=env.spec.reward_threshold,
            cameras=_cameras(env),
        )
        fields = tuple(entry.field for entry in bound_fields(card))
    finally:
        env.close()
    card = EnvironmentCard.from_dict({**card.to_dict(), "fields": [vars(entry) for entry in fields]})
    with replacing(folder) as new:
        return _finish(card, new)


def _cameras(env: Any) -> tuple[str, ...]:
    """Return the cameras of an environment that has a MuJoCo model; one of a sandboxed process shows none."""
    model = getattr(getattr(env, "unwrapped", None), "model", None)
    return cameras_of(model) if hasattr(model, "ncam") else ()


def _title(env_id: str) -> str:
    module = custom.module_of(env_id)
    name = env_id.removeprefix(custom.GYMNASIUM)
    return f"{name.partition(':')[2]} of the module {module}" if module else f"Gymnasium's {name}"


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for an environment; it replaces ``folder`` once it is written without an error.

    Until then readers find what was there, whole. The swap is two renames: between them, and after a kill just there until
    the environment is added again, a reader finds none. One that reads several files may get some of the old and some of the
    new.

    While it is written, this process, which is the command line's, looks up custom environments only next to it.
    """
    before, root = (folder.with_name(f".{folder.name}.{kind}") for kind in ("before", "adding"))
    _put_back(folder, before)
    shutil.rmtree(root, ignore_errors=True)
    new = root / folder.name
    new.mkdir(parents=True)
    try:
        with _environments_in(root):
            yield new
        if folder.exists():
            folder.rename(before)
        try:
            new.rename(folder)
        except OSError:
            _put_back(folder, before)
            raise
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _put_back(folder: Path, before: Path) -> None:
    """Clean up a replacement that was cut short: keep the new environment where it is whole, else the one from before it."""
    if before.exists() and not _is_whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
        before.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    """Return whether all files of `_finish` exist: it writes the check episodes last, and the card's scales before them."""
    try:
        card = json.loads((folder / custom.CARD_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    episodes = list((folder / custom.TRAJECTORIES).glob("*.npz"))
    return bool(card.get("scales")) and len(episodes) == CHECK_EPISODES


@contextmanager
def _environments_in(root: Path) -> Iterator[None]:
    """Look up custom environments in ``root``: measuring an environment reads its card and its model by its id."""
    previous = os.environ[custom.VARIABLE]
    os.environ[custom.VARIABLE] = str(root)
    try:
        yield
    finally:
        os.environ[custom.VARIABLE] = previous


def _finish(card: EnvironmentCard, folder: Path) -> EnvironmentCard:
    """Write the card, measure on it, write it again with the scales; then write the check episodes."""
    path = folder / custom.CARD_FILE
    path.write_text(card_text(card), "utf-8")
    card = with_scales(card, episodes=_EPISODES)
    path.write_text(card_text(card), "utf-8")
    write_check_episodes(card, folder / custom.TRAJECTORIES)
    return card


def _action_time(physics: float, requested: float | None) -> float:
    if requested is not None and not (math.isfinite(requested) and physics <= requested <= 10):
        expected = f"seconds from the physics time step, {physics:g}, to 10"
        raise InvalidArgument(field="time_step", value=requested, expected=expected)
    return physics * max(1, round((requested or _TIME_STEP) / physics))


def _actions(adapter: Any) -> tuple[ActionComponent, ...]:
    if adapter.num_actions:
        words = f"one of {adapter.num_actions} choices, 0 to {adapter.num_actions - 1}"
        return (ActionComponent("choice", 0, adapter.num_actions - 1, "1", words),)
    return tuple(
        ActionComponent(f"action_{index}", float(low), float(high), "1", f"number {index} of the action")
        for index, (low, high) in enumerate(zip(adapter.low, adapter.high, strict=True))
    )


def _seconds(env: Any) -> float:
    """Return the seconds of a step: the environment's own value, else from its frame rate, else 1."""
    stock = env.unwrapped
    seconds = getattr(stock, "dt", None) or getattr(stock, "tau", None)
    rate = env.metadata.get("render_fps")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 1 / rate if rate else 1.0
