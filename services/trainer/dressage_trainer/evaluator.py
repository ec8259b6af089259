"""The evaluator: a sandboxed process that plays a policy on stock Gymnasium. No generated code is ever loaded here."""

from __future__ import annotations

from pathlib import Path

from dressage.envs.options import EnvOptions
from dressage.envs.reference import rollout
from dressage.policies import Policy, PolicyCard
from dressage.sandbox.pipe import Channel, ChannelClosed

from dressage_trainer.messages import EvaluateReply


def evaluate(channel: Channel) -> None:
    """Sandbox target: answers `EvaluateRequest`s until the channel closes. Episodes run in lockstep, one per seed."""
    while True:
        try:
            request = channel.recv(timeout=None)
        except ChannelClosed:
            return
        policy = Policy(weights=request["weights"], card=PolicyCard.from_dict(request["card"]))
        folder = Path(request["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        episodes = rollout(
            policy.act, request["environment"], request["seeds"], EnvOptions(**request["options"]), batched=True
        )
        for episode in episodes:
            path = folder / f"{episode.seed}.npz"
            episode.save(path)
            paths.append(str(path))
        channel.send(EvaluateReply(paths=tuple(paths)).to_dict())
