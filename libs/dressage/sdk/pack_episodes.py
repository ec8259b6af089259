"""Episodes in an environment of a pack, or of a module of the user's own.

A player process steps the environment, as in a session, because the pack's packages disagree with those of this process. The
policy acts on this side, in this process or in a sandboxed one of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dressage.envs.options import EnvOptions
from dressage.envs.packs.registry import PACKS, installed_packages
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.installation import install_command

if TYPE_CHECKING:
    from dressage_trainer.evaluation.player_pool import Player

    from dressage.envs.cards import EnvironmentCard
    from dressage.envs.reference import Policy as Actor


def play(
    policy: Callable[[int], Actor], card: EnvironmentCard, options: EnvOptions, seeds: range, *, together: int = 1
) -> tuple[list[float], list[int]]:
    """Play one episode per seed; return their returns and lengths, in the order of the seeds.

    :param policy: the policy of a part, by its first seed; it maps (n, D) to (n, A) or (n,) for the episodes that still run.
    :param together: episodes of a part, which run in lockstep, unless the simulator runs one at a time.
    :raises FailedPrecondition: if the pack is not installed or does not work, with the command that installs it.
    :raises Unavailable: if the player ends or hangs.
    :raises InvalidArgument: for an action of the wrong shape or not finite.
    """
    size = 1 if card.pack and PACKS[card.pack].single else together
    returns: list[float] = []
    lengths: list[int] = []
    with _player(card) as player:
        for start in range(0, len(seeds), size):
            part = seeds[start : start + size]
            played = _part(policy(part[0]), card, options, part, player)
            returns += played[0]
            lengths += played[1]
    return returns, lengths


@contextmanager
def _player(card: EnvironmentCard) -> Iterator[Player]:
    """A player of the trainer, which ends with the block."""
    if card.pack:
        installed_packages(card.pack)  # the first thing to report, whatever else is missing
    try:
        from dressage_trainer.evaluation.player_pool import Player, sandbox_of
        from dressage_trainer.lease.sandboxes import Sandboxes
    except ModuleNotFoundError as error:
        message = f"{card.id} is played by a trainer, which needs {error.name}: {install_command('trainer')}"
        raise FailedPrecondition(message, reason="MISSING_EXTRA") from error
    folder = Path(tempfile.mkdtemp(prefix="dressage-player-"))
    player = Player(Sandboxes(folder), sandbox_of(card.pack), pack=card.pack)
    player.environment = card.id
    try:
        with player.conversation():
            yield player
    finally:
        player.end()
        shutil.rmtree(folder, ignore_errors=True)


def _part(
    policy: Actor, card: EnvironmentCard, options: EnvOptions, seeds: range, player: Player
) -> tuple[list[float], list[int]]:
    from dressage.envs.reference import checked_action

    arguments = {"environment": card.id, "options": options.overrides(), "seeds": list(seeds), "observed": False}
    reply = player.ask({"lockstep": "begin", **arguments})
    step = 0
    while running := len(reply["episodes"]):
        actions = np.asarray(policy(reply["observations"]))
        if actions.shape[:1] != (running,):
            raise InvalidArgument(field="action", value=actions.shape, expected=f"{running} rows")
        rows = np.stack([checked_action(row, card, step=step) for row in actions])
        dtype = np.int64 if card.action_kind == "discrete" else np.float64
        reply = player.ask({"lockstep": "step", "actions": rows.astype(dtype)})
        step += 1
    return [float(value) for value in reply["returns"]], [int(value) for value in reply["lengths"]]
