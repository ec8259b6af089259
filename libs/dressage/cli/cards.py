"""Environment cards for `dressage envs`: a server's, or those of this installation."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.cli import output
from dressage.cli.options import ENVIRONMENTS
from dressage.local.connection import Connection, execute
from dressage.local.connection import ServerOptions as Where
from dressage.sdk.progress import short


def all_cards(address: str | None, token: str | None) -> list[dict[str, Any]]:
    """All cards as plain values, each with its description as `text`."""
    if address:

        async def work(connection: Connection) -> list[dict[str, Any]]:
            listing = connection.client.list_environments()
            return [_from_message(environment) async for environment in listing]

        return execute(Where(address, token), work)
    from dressage.envs.cards import list_cards
    from dressage.envs.describe import describe

    return [{**card.to_dict(), "text": describe(card)} for card in list_cards()]


def one_card(environment: str, address: str | None, token: str | None) -> dict[str, Any]:
    """One card.

    :raises NotFound: naming the known environments.
    """
    if address:

        async def work(connection: Connection) -> dict[str, Any]:
            return _from_message(await connection.client.get_environment(environment))

        return execute(Where(address, token), work)
    from dressage.envs.cards import load_card
    from dressage.envs.describe import describe

    card = load_card(short(environment))
    return {**card.to_dict(), "text": describe(card)}


def add(source: str, *, name: str, time_step: float | None, episode_steps: int | None) -> dict[str, Any]:
    """Describe a custom environment on this machine.

    :param name: of a model's environment; empty: the file's.
    :param time_step: seconds between a model's actions; None: about 0.02.
    :param episode_steps: of a model's episode; None: 1000.
    :raises InvalidArgument: for a model or an environment that cannot be used, one that is neither, a registered one with
        what only a model takes, or a folder of custom environments that cannot be written to.
    """
    from dressage.envs import adding, custom
    from dressage.envs.describe import describe

    if source.startswith(custom.GYMNASIUM):
        _refuse_for_registered(source, {"--name": name or None, "--time-step": time_step})
        session = "; `--env-option max_episode_steps=N` of run and train bounds the episodes of a session"
        _refuse_for_registered(source, {"--episode-steps": episode_steps}, instead=session)
        with _kept():
            card = adding.add_registered(source)
    elif source.endswith((".xml", ".mjcf")):
        path = Path(source).expanduser()
        steps = {} if episode_steps is None else {"max_episode_steps": episode_steps}
        with _kept():
            card = adding.add_model(path, name=name, time_step=time_step, **steps)
    else:
        raise errors.InvalidArgument(field="source", value=source, expected="a model's .xml file, or gymnasium:ID")
    return {**card.to_dict(), "text": describe(card)}


def _refuse_for_registered(source: str, given: dict[str, object], *, instead: str = "") -> None:
    """A registered environment is taken as it is registered, so what would change it is not passed over in silence."""
    for option, value in given.items():
        if value is not None:
            expected = f"it with a model's .xml file only, not with {source}{instead}"
            raise errors.InvalidArgument(field=option, value=value, expected=expected)


def _kept() -> AbstractContextManager[None]:
    """Around what writes to the folder of custom environments."""
    return output.writing(
        "folder of custom environments",
        os.environ.get(ENVIRONMENTS, ""),
        expected="a folder that can be written to, as --data-dir or DRESSAGE_ENVIRONMENTS says",
    )


def _from_message(environment: Any) -> dict[str, Any]:
    return {**output.message_dict(environment), "id": short(environment.name)}


def print_cards(cards: list[dict[str, Any]], *, as_json: bool) -> None:
    """A table of environments."""
    if as_json:
        output.print_json({"environments": cards})
        return
    rows = [
        (
            card["id"],
            card["title"],
            card["observation_size"],
            len(card.get("actions", card.get("action", ()))),
            f"{card['max_episode_steps']} × {card['time_step']:g} s",
            "; ".join(card.get("example_intents", ())[:2]),
        )
        for card in cards
    ]
    output.print_table(("environment", "what it is", "observation", "actions", "episode", "try"), rows)


def print_card(card: dict[str, Any], *, as_json: bool) -> None:
    """One environment, as a model is shown it."""
    if as_json:
        output.print_json(card)
    else:
        print(card["text"])
