"""Environment cards for `dressage envs`: a server's, or those of this installation."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.cli import output
from dressage.cli.options import ENVIRONMENTS
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.texts import short


def all_cards(server: ServerOptions) -> list[dict[str, Any]]:
    """Return all cards as JSON values, each with its description as `text`."""
    if server.address:

        async def work(connection: Connection) -> list[dict[str, Any]]:
            listing = connection.client.list_environments()
            return [_from_message(environment) async for environment in listing]

        return execute(server, work)
    from dressage.envs.cards import list_cards
    from dressage.envs.describe import describe

    return [{**card.to_dict(), "text": describe(card)} for card in list_cards()]


def one_card(environment: str, server: ServerOptions) -> dict[str, Any]:
    """Return one card.

    :raises NotFound: naming the known environments.
    """
    if server.address:

        async def work(connection: Connection) -> dict[str, Any]:
            return _from_message(await connection.client.get_environment(environment))

        return execute(server, work)
    from dressage.envs.cards import load_card
    from dressage.envs.describe import describe

    card = load_card(environment.removeprefix("environments/"))
    return {**card.to_dict(), "text": describe(card)}


def add(source: str, *, name: str, time_step: float | None, episode_steps: int | None) -> dict[str, Any]:
    """Add a custom environment on this machine and return its card.

    :param name: name of a model's environment; empty: that of the file.
    :param time_step: seconds between the actions of a model; None: about 0.02.
    :param episode_steps: steps of a model's episode; None: 1000.
    :raises InvalidArgument: for a model or an environment that cannot be used, any other source, an option of models with a
        registered environment, or a folder of custom environments that cannot be written.
    """
    from dressage.envs import adding, custom
    from dressage.envs.describe import describe

    if source.startswith(custom.GYMNASIUM):
        _refuse_for_registered(source, {"--name": name or None, "--time-step": time_step})
        remedy = "Use `--env-option max_episode_steps=N` of run and train to limit the episodes of a session."
        _refuse_for_registered(source, {"--episode-steps": episode_steps}, remedy=remedy)
        from dressage.sdk import own_environments

        with _writing():
            card = own_environments.add(source) if custom.module_of(source) else adding.add_registered(source)
    elif source.endswith((".xml", ".mjcf")):
        path = Path(source).expanduser()
        steps = {} if episode_steps is None else {"max_episode_steps": episode_steps}
        with _writing():
            card = adding.add_model(path, name=name, time_step=time_step, notify=_notify, **steps)
    else:
        raise errors.InvalidArgument(
            field="MODEL.xml|gymnasium:[MODULE:]ID",
            value=source,
            expected="a .xml file with a model, gymnasium:ID or gymnasium:MODULE:ID",
        )
    return {**card.to_dict(), "text": describe(card)}


def _notify(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _refuse_for_registered(source: str, options: dict[str, object], *, remedy: str = "") -> None:
    """Refuse options that would change a registered environment, which is used as registered."""
    for option, value in options.items():
        if value is not None:
            raise errors.InvalidArgument(
                field=option,
                problem=f"not supported for {source}",
                value=value,
                expected="a model's .xml file with it",
                remedy=remedy,
            )


def _writing() -> AbstractContextManager[None]:
    """Convert errors of writing to the folder of custom environments."""
    return output.writing(
        "folder of custom environments",
        os.environ.get(ENVIRONMENTS, ""),
        expected="a folder that can be written to; set --data-dir or DRESSAGE_ENVIRONMENTS",
    )


def _from_message(environment: Any) -> dict[str, Any]:
    return {**output.message_dict(environment), "id": short(environment.name)}


def print_cards(cards: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print a table of environments."""
    if as_json:
        output.print_json({"environments": cards})
        return
    rows = [
        (
            card["id"],
            card["title"],
            _size(card.get("observation_size", 0), card.get("num_observations", 0)),
            _size(len(card.get("actions", card.get("action", ()))), card.get("num_actions", 0)),
            f"{card['max_episode_steps']} × {card['time_step']:g} s",
            ", ".join(card.get("methods", ())),
            "; ".join(card.get("example_intents", ())[:2]),
        )
        for card in cards
    ]
    output.print_table(
        ("environment", "description", "observation", "actions", "episode", "methods", "example intents"), rows
    )


def _size(numbers: int, choices: int) -> str:
    """Return the size of a space: `17` numbers, `1 of 4` values, or none."""
    return f"1 of {choices}" if choices else str(numbers or "–")


def print_card(card: dict[str, Any], *, as_json: bool) -> None:
    """Print one environment as language models get it."""
    if as_json:
        output.print_json(card)
    else:
        print(card["text"])
        if card.get("methods"):
            print(f"Methods: {', '.join(card['methods'])}")
        if card.get("target") is not None:
            print(f"Solved at a mean return of {card['target']:g}")
