"""The evaluator: a sandboxed process that plays a policy on stock Gymnasium. It never loads generated code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dressage.envs.cards import load_card
from dressage.envs.options import EnvOptions
from dressage.envs.reference import rollout
from dressage.policies import Policy, PolicyCard
from dressage.sandbox.pipe import Channel, ChannelClosed

from dressage_trainer.messages import NO_ROOM, EvaluateReply

_STEPS_AT_ONCE = 50_000
"""Episodes with at most this many steps in total run in lockstep; a step of Humanoid takes 19 KB until it is saved."""


def evaluate(channel: Channel) -> None:
    """Sandbox target: answer `EvaluateRequest`s until the channel closes, with a reply for every few episodes."""
    while True:
        try:
            request = channel.recv(timeout=None)
        except ChannelClosed:
            return
        try:
            for paths in _play(request):
                channel.send(EvaluateReply(paths=paths).to_dict())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            channel.send(EvaluateReply(error=error.errno).to_dict())


def _play(request: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the episodes, a few at a time."""
    policy = Policy(weights=request["weights"], card=PolicyCard.from_dict(request["card"]))
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    options = EnvOptions(**request["options"])
    seeds, size = request["seeds"], _episodes_at_once(request["environment"], options)
    together = not load_card(request["environment"]).pack  # a pack's simulators share random streams
    for start in range(0, len(seeds), size):
        part = seeds[start : start + size]
        paths = []
        # On stock Gymnasium, not on the simulation that trained: a reward cannot forge its score (decision 0002).
        for episode in rollout(policy.act, request["environment"], part, options, batched=together):
            path = folder / f"{episode.seed}.npz"
            episode.save(path)
            paths.append(str(path))
        yield tuple(paths)


def _episodes_at_once(environment: str, options: EnvOptions) -> int:
    longest = options.max_episode_steps or load_card(environment).max_episode_steps
    return max(1, _STEPS_AT_ONCE // longest)
