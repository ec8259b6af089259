"""Compare the checkpoint that `--checkpoint best` chooses with the last one, on fresh episodes.

Reads sessions of the reward method; whether they were run with `--checkpoint best` makes no difference. For each member of each
training the best-judged checkpoint and the last one play the same episodes on stock Gymnasium: first those on which a session
compares them, where the better one is chosen as a session chooses it, then others. The session's judge scores all episodes.
Where the last checkpoint is chosen, the difference is 0.
Prints a table, and the mean difference with its 95 % bootstrap interval over trainings.

    python research/checkpoint_choice.py out/examples/backflip out/examples/sit_up
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dressage.api.v1 import session_pb2 as v1
from dressage.contracts.host import run_judge_in_sandbox
from dressage.envs.options import EnvOptions
from dressage.envs.reference import rollout
from dressage.local.connection import ServerOptions, connect
from dressage.policies import load as load_bundle
from dressage.statistics import bootstrap_interval
from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.report import SELECTION_SEED
from dressage_orchestrator.methods.reward.checkpoint_choice import better_checkpoints
from dressage_orchestrator.methods.reward.training import COMPARED_EPISODES

FIRST_SEED = 4_000_000
"""Seed of the first fresh episode, far from those of evaluations, confirmations and `dressage eval`."""
_TOGETHER = 10
"""Episodes in lockstep, which bounds the memory of their recordings."""


@dataclass(frozen=True)
class Training:
    """One member of one training."""

    name: str
    intent: str
    judge: str
    policies: Path
    """Folder with a bundle of each checkpoint, named after its steps."""
    marks: tuple[tuple[int, float], ...]
    """Steps and score of each judged checkpoint, in order."""
    best: int | None
    """Steps of the best-judged checkpoint; None if none scores higher than the last one."""

    @property
    def last(self) -> int:
        """Steps of the last checkpoint."""
        return self.marks[-1][0]


async def read(data: Path) -> AsyncIterator[Training]:
    """Yield the trainings of a data folder's sessions, oldest session first."""
    async with connect(ServerOptions(data_dir=data)) as connection:
        if connection.artifacts is None:
            raise SystemExit(f"{data}: the artifacts are not on this machine")
        sessions = [session async for session in connection.client.list_sessions()]
        for session in reversed(sessions):
            async for assignment in connection.client.list_assignments(session.name):
                if not assignment.name.rpartition("/")[2].startswith("train"):
                    continue
                judge = connection.artifacts / assignment.name.partition("/assignments/")[0] / "judge.py"
                for member in assignment.members:
                    folder = connection.artifacts / assignment.name / "members" / member.name.rpartition("/")[2]
                    yield training_of(member, session.spec, judge=judge.read_text(), folder=folder)


def training_of(member: v1.Member, spec: v1.SessionSpec, *, judge: str, folder: Path) -> Training:
    """Return a member's judged checkpoints.

    :param folder: the member's artifacts.
    """
    scored = [(entry.env_step, aggregate.checkpoint_score(entry)) for entry in member.evaluations]
    marks = tuple((step, score) for step, score in scored if score is not None)
    best = better_checkpoints([member]).get(member.name.rpartition("/")[2])
    return Training(member.name, spec.intent, judge, folder / "policies", marks, best)


def scores(training: Training, step: int, seeds: range) -> list[float]:
    """Return the judge's scores of a checkpoint's episodes."""
    policy = load_bundle(training.policies / str(step))
    card = policy.description
    options = EnvOptions.from_dict(card.environment_options)
    values: list[float] = []
    for start in range(0, len(seeds), _TOGETHER):
        played = rollout(policy.act, card.environment, seeds[start : start + _TOGETHER], options, batched=True)
        with tempfile.TemporaryDirectory() as scratch:
            values += [result.score for result in run_judge_in_sandbox(training.judge, played, scratch=Path(scratch))]
    return values


def chosen(training: Training) -> int:
    """Return the steps of the checkpoint that a session with `--checkpoint best` delivers."""
    if training.best is None:
        return training.last
    seeds = range(SELECTION_SEED, SELECTION_SEED + COMPARED_EPISODES)
    pairs = zip(scores(training, training.best, seeds), scores(training, training.last, seeds), strict=True)
    low, _ = bootstrap_interval([earlier - last for earlier, last in pairs])
    return training.best if low > 0 else training.last


async def trainings(folders: Sequence[Path]) -> list[Training]:
    """Read all trainings of all data folders."""
    return [training for folder in folders for training in [entry async for entry in read(folder)]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+", help="data folder of sessions")
    parser.add_argument("--episodes", type=int, default=20, help="fresh episodes of each policy")
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.episodes)
    differences = []
    print("| behaviour | iteration | checkpoints as judged | chosen | last, fresh | chosen, fresh | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for training in asyncio.run(trainings(arguments.folder)):
        step = chosen(training)
        last = float(np.mean(scores(training, training.last, seeds)))
        value = last if step == training.last else float(np.mean(scores(training, step, seeds)))
        differences.append(value - last)
        number = training.name.partition("/iterations/")[2].partition("/")[0]
        marks = " ".join(f"{score:.2f}" for _, score in training.marks)
        place = [mark for mark, _ in training.marks].index(step) + 1
        named = "last" if step == training.last else f"no. {place} of {len(training.marks)}"
        row = f"{training.intent} | {number} | {marks} | {named} | {last:.2f} | {value:.2f} | {value - last:+.2f}"
        print(f"| {row} |", flush=True)
    low, high = bootstrap_interval(differences)
    print(f"\n{len(differences)} trainings, mean difference {np.mean(differences):+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
