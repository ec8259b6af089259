"""Writes the cards of installed environment packs: `python tools/pack_cards.py NAME...`; `--check` compares them."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.catalogue import catalogue
from dressage.envs.generate import card_text
from dressage.envs.packs.registry import PACKS
from dressage.pack_process import pack_process
from dressage.sandbox.pipe import ChannelClosed
from dressage.sandbox.process import SandboxProcess

_SECONDS = 3600.0
_EXIT_SECONDS = 10.0


@contextmanager
def simulators(name: str) -> Iterator[SandboxProcess]:
    """Run `dressage.envs.packs.cards.describe` in a process of an installed pack.

    :raises FailedPrecondition: if the pack is not installed.
    """
    with pack_process(name, "dressage.envs.packs.cards:describe") as running:
        try:
            yield running
            running.channel.send({"environment": "", "folder": ""})
        except ChannelClosed:
            ended = running.wait(_EXIT_SECONDS)
            sys.exit(
                f"the process of {name} ended: {ended.reason}\n{ended.stderr_tail}" if ended else "it does not end"
            )


def card_of(running: SandboxProcess, env_id: str) -> EnvironmentCard:
    """Return the card of an environment of the pack, built in its process."""
    running.channel.send({"environment": env_id, "folder": ""})
    return EnvironmentCard.from_dict(running.channel.recv(timeout=_SECONDS)["card"])


def write(running: SandboxProcess, card: EnvironmentCard) -> None:
    """Write a card and its check episodes into the package."""
    entry = catalogue()[card.id]
    entry.card_file.write_text(card_text(card), "utf-8")
    running.channel.send({"environment": card.id, "folder": card.id})
    running.channel.recv(timeout=_SECONDS)
    shutil.rmtree(entry.trajectories, ignore_errors=True)
    shutil.copytree(running.scratch / card.id, entry.trajectories)


def _without_scales(card: EnvironmentCard) -> EnvironmentCard:
    """Return the card without its scales, which differ a little between types of processors."""
    return replace(card, scales={})


def main(arguments: Sequence[str] | None = None) -> None:
    """Write or check the cards of installed packs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", default=sorted(PACKS))
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a card differs")
    args = parser.parse_args(arguments)
    for name in args.names:
        with simulators(name) as running:
            for env_id in PACKS[name].environments:
                card = card_of(running, env_id)
                if not args.check:
                    write(running, card)
                elif _without_scales(load_card(env_id)) != _without_scales(card):
                    sys.exit(f"the card of {env_id} is not current: python tools/pack_cards.py {name}")


if __name__ == "__main__":
    main()
