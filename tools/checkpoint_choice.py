"""Compare the checkpoint that `--checkpoint best` delivers with the last one, on fresh episodes.

Reads sessions of the reward method that were run with `--checkpoint best`. For each member of each training both policies play
the same episodes on stock Gymnasium, of seeds that neither the training nor the session used; the session's judge scores all of
them. Where the last checkpoint was delivered, the difference is 0. Prints a table, and the mean difference with its 95 %
bootstrap interval over trainings.

    python tools/checkpoint_choice.py out/best/backflip out/best/sit_up
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

FIRST_SEED = 4_000_000
"""Seed of the first episode, far from those of evaluations (1,000,000), confirmations (2,000,000) and `dressage eval`."""
_TOGETHER = 10
"""Episodes in lockstep, which bounds the memory of their recordings."""


@dataclass(frozen=True)
class Training:
    """One member of one training."""

    name: str
    intent: str
    judge: str
    last: Path
    chosen: Path
    """Bundles of policies; the same folder if the last checkpoint was delivered."""
    marks: tuple[tuple[int, float], ...]
    """Steps and score of each judged checkpoint, in order."""
    delivered: int
    """Steps of the delivered checkpoint."""


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
                    yield training_of(
                        member, session.spec.intent, judge.read_text(), connection.artifacts, assignment.name
                    )


def training_of(member: v1.Member, intent: str, judge: str, artifacts: Path, training: str) -> Training:
    """Return what a member of a training delivered and how its checkpoints were judged."""
    marks = tuple(
        (entry.env_step, float(np.mean([r.judgment.score for r in entry.rollouts])))
        for entry in member.evaluations
        if entry.rollouts
    )
    last, delivered = marks[-1][0], member.delivered_env_step or marks[-1][0]
    policies = artifacts / training / "members" / member.name.rpartition("/")[2] / "policies"
    return Training(member.name, intent, judge, policies / str(last), policies / str(delivered), marks, delivered)


def scores(bundle: Path, judge: str, episodes: int) -> np.ndarray:
    """Return the judge's score of each fresh episode of a policy."""
    policy = load_bundle(bundle)
    card = policy.description
    options = EnvOptions.from_dict(card.environment_options)
    found: list[float] = []
    for start in range(0, episodes, _TOGETHER):
        seeds = range(FIRST_SEED + start, FIRST_SEED + min(start + _TOGETHER, episodes))
        played = rollout(policy.act, card.environment, seeds, options, batched=True)
        with tempfile.TemporaryDirectory() as scratch:
            found += [result.score for result in run_judge_in_sandbox(judge, played, scratch=Path(scratch))]
    return np.array(found)


def compare(training: Training, episodes: int) -> tuple[float, float]:
    """Return the mean scores of the last and of the delivered checkpoint on fresh episodes."""
    last = float(scores(training.last, training.judge, episodes).mean())
    if training.chosen == training.last:
        return last, last
    return last, float(scores(training.chosen, training.judge, episodes).mean())


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.array(differences), (10_000, len(differences))).mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


async def trainings(folders: Sequence[Path]) -> list[Training]:
    """Read all trainings of all data folders."""
    return [training for folder in folders for training in [entry async for entry in read(folder)]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+", help="data folder of a session with --checkpoint best")
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    differences = []
    print("| behaviour | iteration | checkpoints as judged | delivered | last, fresh | delivered, fresh | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for training in asyncio.run(trainings(arguments.folder)):
        last, chosen = compare(training, arguments.episodes)
        differences.append(chosen - last)
        number = training.name.partition("/iterations/")[2].partition("/")[0]
        marks = " ".join(f"{score:.2f}" for _, score in training.marks)
        place = [step for step, _ in training.marks].index(training.delivered) + 1
        delivered = "last" if place == len(training.marks) else f"no. {place} of {len(training.marks)}"
        row = f"{training.intent} | {number} | {marks} | {delivered} | {last:.2f} | {chosen:.2f} | {chosen - last:+.2f}"
        print(f"| {row} |", flush=True)
    low, high = interval(differences)
    print(f"\n{len(differences)} trainings, mean difference {np.mean(differences):+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
