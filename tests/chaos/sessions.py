"""Small sessions of each method, with a scripted provider whose replies depend on nothing but the seed and the prompt.

A provider that repeats a request's reply makes a disturbed session comparable: a request that is repeated after a crash changes
nothing but the number of requests.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dressage.api.v1 import session_pb2 as v1

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))

from openai_server import Answer, Call, Request, ScriptedServer
from search_authors import SearchAuthors

METHODS = ("parameters", "code", "program", "reward")
_MODEL = "openai/scripted"
_DELAY_SECONDS = 0.3
"""Before each answer, so that some kills meet a request on its way."""

_REWARD = """LATEX = r"1 - {weight}\\,x^2"
TERMS = {{"alive": "1 for every step", "place": "cost of the squared distance"}}
MEMORY = {{"steps": 0.0}}


def reward(state, action, next_state, memory, np):
    memory.steps = memory.steps + 1.0
    place = -{weight} * np.square(next_state.x_position) + 0.0001 * memory.steps
    return {{"alive": np.ones_like(next_state.pole_angle), "place": place}}
"""

_JUDGE = """def judge(trajectory, np):
    lasted = min(len(trajectory.action) / 1000.0, 0.9)
    angle = float(np.abs(trajectory.pole_angle).mean())
    return {"score": lasted, "criteria": {"lasted": lasted}, "evidence": {"mean_angle_rad": angle}}
"""


def spec(method: str, seed: int) -> v1.SessionSpec:
    """Return the spec of a session that takes seconds on an idle machine."""
    result = v1.SessionSpec(intent="balance the pole", environment="environments/CartPole-v1", model=_MODEL, seed=seed)
    match method:
        case "parameters":
            settings: dict[str, Any] = {
                "target": 1e12,
                "episodes": 2,
                "report_episodes": 3,
                "warmup": 2,
                "episode_budget": 10,
            }
            result.parameters.CopyFrom(v1.ParameterSpec(search="r2po", **settings))
        case "code":
            result.max_iterations = 2
            result.code.CopyFrom(v1.CodeSpec(candidates=2, episodes=1, report_episodes=2, target=1e9, feedback=False))
        case "program":
            result.intent, result.environment = "open the door", "environments/karel/DoorKey"
            result.program.CopyFrom(v1.ProgramSpec(seed_programs=2, replies=3, budget=20_000, target=2))
        case "reward":
            result.environment, result.max_iterations = "environments/InvertedPendulum-v5", 2
            result.environment_options.max_episode_steps = 100
            result.video_judging = v1.VIDEO_JUDGING_NONE
            result.pass_threshold = 1.0
            training: dict[str, Any] = {
                "seeds": 1,
                "steps_per_member": 4_096,
                "evaluations": 2,
                "evaluation_episodes": 3,
            }
            result.reward.CopyFrom(v1.RewardSpec(**training))
        case _:
            raise AssertionError(method)
    return result


def answers(seed: int) -> list[Answer]:
    """Return the provider's script for sessions of all methods."""
    authors = SearchAuthors(seed=seed, repeatable=True, delay=_DELAY_SECONDS)
    return [*authors.answers(), *_reward_answers(seed), _say("You are the program author", _program(seed))]


def _reward_answers(seed: int) -> list[Answer]:
    weights = [round(random.Random(f"{seed} {number}").uniform(0.05, 0.5), 3) for number in range(2)]
    first, second = (_module(_REWARD.format(weight=weight)) for weight in weights)
    calls = (Call("get_scores"), Call("get_iteration", {"number": 1}))
    revision = (
        "## Diagnosis\nThe pole leans.\n\n## Lesson\nThe distance has to cost something.\n\n## Based on\n1\n\n"
        f"## Planned change\nAnother weight.\n\n{second}"
    )
    judge = f"## Reasoning\nHow long it lasts.\n\n## Null controls\nrandom, untrained, motionless\n\n{_module(_JUDGE)}"
    return [
        _say("You are the reward author", f"## Reasoning\nIt stays up.\n\n{first}"),
        _say("You are the judge author", judge),
        Answer(calls=calls, when=lambda request: _is_reviser(request) and not request.text("tool"), repeat=True),
        Answer(revision, when=_is_reviser, delay=_DELAY_SECONDS, repeat=True),
    ]


def _is_reviser(request: Request) -> bool:
    return "You are the reviser" in request.text("system")


def _program(seed: int) -> str:
    turns = "turnLeft move turnRight " * random.Random(seed).randint(1, 6)
    return f"DEF run m( {turns}move m)"


def _say(role: str, text: str) -> Answer:
    return Answer(text, when=role, delay=_DELAY_SECONDS, repeat=True)


def _module(source: str) -> str:
    return f"```python\n{source}```\n"


class Provider:
    """The scripted provider of an installation, for one session at a time.

    :param port: where llm-agent looks for it.
    """

    def __init__(self, port: int) -> None:
        self._server = ScriptedServer([], port=port)

    def __enter__(self) -> Provider:
        self._server.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.__exit__(*exception)

    def begin(self, seed: int) -> None:
        """Begin another session."""
        self._server.begin(answers(seed))

    def received(self) -> int:
        """Return the number of requests so far."""
        return len(self._server.requests)

    def requests(self, clean: Callable[[str], str]) -> Counter[str]:
        """Return how often each request was received: its system prompt's first words, and a hash of the whole."""
        assert not self._server.unexpected, self._server.unexpected[0].text()[-500:]
        result: Counter[str] = Counter()
        for request in self._server.requests:
            digest = hashlib.sha256(clean(json.dumps(request.body, sort_keys=True)).encode()).hexdigest()[:16]
            result[f"{request.text('system')[:40]!r} {digest}"] += 1
        return result
