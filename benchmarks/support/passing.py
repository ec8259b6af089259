"""Our trainer until its policies pass a judge, and what both sides share: the reward, the judge and the clock.

Argument: one JSON object with ``environment``, ``intent``, ``algorithm``, ``seeds`` (a list), ``threads``, ``every``
(environment steps between two judgments), ``random_steps``, ``max_steps`` and ``limit_seconds``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PASS_SCORE = 0.7
"""The default threshold of sessions."""
EPISODES = 4
FIRST_SEED = 1_000_000


def written(environment: str, intent: str) -> tuple[str, str]:
    """Sources of the template author's reward and judge."""
    from dressage.api.internal.v1.agent_service_pb2 import Brief
    from dressage_llm_agent.template.author import write_judge, write_reward

    brief = Brief(intent=intent, environment=environment)
    return write_reward(brief).source, write_judge(brief).source


def scorer(environment: str, judge_source: str) -> Callable[[Any], float]:
    """What gives the mean score of a policy, (n, D) observations to (n, A) actions, over stock episodes."""
    from dressage.envs.reference import rollout

    names: dict[str, Any] = {}
    exec(judge_source, names)  # the template author's own code

    def score(act: Any) -> float:
        episodes = rollout(act, environment, range(FIRST_SEED, FIRST_SEED + EPISODES), batched=True)
        return float(np.mean([names["judge"](episode, np)["score"] for episode in episodes]))

    return score


@dataclass
class Progress:
    """Judgments of one training and its clock, which stands still while policies are judged.

    :param began: `time.perf_counter` at the start of the process: imports and compilation count.
    :param limit_seconds: longest time from the first step after the random ones on, so that every training has a speed.
    :param random_steps: steps of random actions, before learning begins.
    """

    began: float
    every: int
    limit_seconds: float
    max_steps: int
    curve: list[list[float]] = field(default_factory=list)
    passed: bool = False
    paused: float = 0.0
    random_steps: int = 0
    clock: Callable[[], float] = time.perf_counter

    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.clock() - self.began - self.paused

    def ended(self, steps: int, score: Callable[[], float]) -> bool:
        """Whether the training ends at this step: it passed, or it has used its steps or its time.

        :param score: judges the present policies; called at marks and at the end.
        """
        spent = self.seconds()
        if not self.curve:
            if steps >= self.random_steps:
                self.curve.append([steps, round(spent, 2), 0.0])
            return False
        over = steps >= self.max_steps or spent - self.curve[0][1] >= self.limit_seconds
        if steps >= self.curve[-1][0] + self.every or over:
            began = self.clock()
            value = score()
            self.paused += self.clock() - began
            self.curve.append([steps, round(spent, 2), round(value, 4)])
            self.passed = value >= PASS_SCORE
        return over or self.passed

    def result(self) -> dict[str, Any]:
        """What a child prints. ``rate``: environment steps per second since the last mark of the first half of the time."""
        steps, spent, score = self.curve[-1]
        start, began, _ = max(mark for mark in self.curve if mark is self.curve[0] or mark[1] <= spent / 2)
        rate = round((steps - start) / max(spent - began, 1e-9), 1)
        last = {"seconds": spent, "steps": int(steps), "score": score, "rate": rate}
        return {"passed": self.passed, **last, "curve": self.curve}


def progress_of(given: dict[str, Any], began: float) -> Progress:
    """The progress of a child's training."""
    return Progress(
        began,
        every=int(given["every"]),
        limit_seconds=float(given["limit_seconds"]),
        max_steps=int(given["max_steps"]),
        random_steps=int(given["random_steps"]),
    )


def train(given: dict[str, Any], began: float, folder: Path) -> dict[str, Any]:
    """Train all seeds at once until the mean of their scores passes."""
    from dressage.policies import Policy, PolicyCard

    from support.ours import build

    reward, judge = written(given["environment"], given["intent"])
    members = [({}, seed) for seed in given["seeds"]]
    groups = build({**given, "members": members, "reward": reward, "steps": given["max_steps"]}, folder)
    score, progress = scorer(given["environment"], judge), progress_of(given, began)

    def mean_score() -> float:
        policies = [member for group in groups for member in group.policies()]
        acts = [Policy(weights=member.weights, card=PolicyCard.from_dict(member.card)).act for member in policies]
        return float(np.mean([score(act) for act in acts]))

    while True:
        min(groups, key=lambda g: g.steps).advance(began=began)
        if progress.ended(min(group.steps for group in groups), mean_score):
            break
    for group in groups:
        group.close()
    return progress.result()


def main() -> None:
    """Trains and prints one JSON object."""
    began, given = time.perf_counter(), json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(train(given, began, Path(folder))))
