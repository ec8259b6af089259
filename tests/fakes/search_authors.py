"""Scripted replies for the roles of the search methods, as answers of `openai_server.ScriptedServer`.

In a test::

    authors = SearchAuthors(seed=3, duplicate_every=5, bad_every=7)
    with ScriptedServer(authors.answers()) as server:
        ...  # run a session with the model openai/scripted and server.url
        assert authors.counts["parameter_proposer"] == 100 and authors.duplicates == 20

Roles and replies:

- ``parameter_proposer``: reads the number of parameters and their limits from the prompt. In the first iterations it draws a
  random vector, then the best vector of the prompt's history with one third of its parameters changed.
- ``critic``: the proposed vector with one parameter changed by at most the step size that the prompt asks for.
- ``policy_author``: a policy that works, for CartPole-v1 and for NoiseWorld boards; for other environments one that returns
  valid actions. The policies of one round differ, and those of later rounds are better. ``policies`` replaces them.
- ``feedback_author``, ``reflector``, ``fixer``: a class that describes the first and the last observation, three sentences, and
  for code that failed the policy or the class above.

A reply is a function of the seed, of the prompt, and of how often this prompt was sent before, so that sessions are
reproducible. With ``repeatable``, a prompt that is sent again gets the same reply.

Every ``duplicate_every``-th proposal repeats the vector of the proposal before it. Every ``bad_every``-th reply
with parameters is one of the faults of `BAD_REPLIES` in turn, and every ``bad_code_every``-th reply of the policy author is no
valid Python; the repair turn gets a good reply, unless ``bad_repairs`` is set. Faults of HTTP are answers before these:
``[Answer(status=429), Answer(status=500), *authors.answers()]``.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openai_server import Answer, Request

ROLES = {
    "parameter_proposer": "You are the parameter proposer",
    "critic": "You are the critic",
    "policy_author": "You are the policy author",
    "feedback_author": "You are the feedback author",
    "reflector": "You are the reflector",
    "fixer": "You are the fixer",
}
"""The words with which the prompt of each role begins."""

BAD_REPLIES = ("prose", "missing", "doubled", "text", "surplus")
"""Faults of replies with parameters, in the order of use: no numbers at all, one missing, one given again in trailing prose,
one that is no number, one too many."""

_WARMUP = 3
_SIZE = re.compile(r"^Number of parameters: (\d+)", re.MULTILINE)
_LIMITS = re.compile(r"^Values: (integers|real numbers)(?: from (\S+) to (\S+))?", re.MULTILINE)
_TRIAL = re.compile(r"^- \[(.*?)\] -> (-?[\d.]+)", re.MULTILINE)
_PROPOSED = re.compile(r"^The proposed vector: \[(.*?)\]", re.MULTILINE)
_STEP = re.compile(r"(?:by more than|by about) ([\d.eE+-]*\d)")
_ACTIONS = re.compile(r"^Action: (\d+) number", re.MULTILINE)

CART_POLE = """import numpy as np


class Policy:
    def reset(self):
        self.gains = np.array([{position}, {velocity}, {angle}, {rate}])

    def act(self, obs):
        return int(self.gains @ obs > 0)
"""

NOISE_WORLD = """import heapq

COSTS = {{0: 1.0, 1: {reset}, 4: {stay}, 5: 1.0, 6: 1.0, 7: 1.0}}
TARGETS = {targets}
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class Policy:
    def reset(self):
        self.reached = 0

    def act(self, obs):
        cells = [int(code) for code in obs[2:]]
        size = round(len(cells) ** 0.5)
        here = (int(obs[0]), int(obs[1]))
        targets = [code for code in TARGETS if code in cells]
        while self.reached < len(targets) - 1 and cells[here[0] * size + here[1]] == targets[self.reached]:
            self.reached += 1
        return self.first_move(cells, size, here, targets[self.reached])

    def first_move(self, cells, size, here, target):
        # The first entry of a cell in the queue has the least cost; each entry has the first move of its path.
        queue, seen = [(0.0, here, 0)], set()
        while queue:
            cost, cell, first = heapq.heappop(queue)
            if cell in seen:
                continue
            seen.add(cell)
            code = cells[cell[0] * size + cell[1]]
            if code == target:
                return first
            for action, (down, right) in enumerate(MOVES):
                row, column = cell[0] + down, cell[1] + right
                if 0 <= row < size and 0 <= column < size and cells[row * size + column] in COSTS:
                    heapq.heappush(queue, (cost + COSTS.get(code, 1.0), (row, column), first if cost else action))
        return 0
"""

RANDOM = """import random


class Policy:
    def reset(self):
        self.random = random.Random({seed})

    def act(self, obs):
        return {action}
"""

FEEDBACK = """import numpy as np


class Feedback:
    def summarize_trajectory(self, observations):
        first, last = np.ravel(observations[0]), np.ravel(observations[-1])
        return f"{len(observations)} observations, from {first[:6]} to {last[:6]}"
"""

REFLECTION = (
    "The best policy of the last round reacts to the latest observation alone. Larger gains raised the returns, smaller ones "
    "did not. A policy that also corrects its position is worth a try."
)


@dataclass
class SearchAuthors:
    """The replies, and counts of them.

    :param duplicate_every: each proposal whose number is a multiple of it repeats the one before; 0: none.
    :param bad_every: each reply with parameters whose number is a multiple of it is faulty; 0: none.
    :param bad_code_every: the same for the policy author.
    :param bad_repairs: whether the repair turn of a faulty reply is faulty as well.
    :param policies: sources that the policy author gives in turn, in place of its own.
    :param delay: seconds before each answer.
    :param repeatable: whether a reply is a function of the seed and the prompt alone; excludes duplicates and bad replies.
    """

    seed: int = 0
    duplicate_every: int = 0
    bad_every: int = 0
    bad_code_every: int = 0
    bad_repairs: bool = False
    policies: Sequence[str] = ()
    delay: float = 0.0
    repeatable: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    """Number of requests by role, without those of repair turns."""
    duplicates: int = 0
    """Number of repeated vectors."""
    bad: int = 0
    """Number of faulty replies."""
    _sent: Counter[str] = field(default_factory=Counter)
    _latest: list[float] = field(default_factory=list)

    def answers(self) -> list[Answer]:
        """Return one answer for each role, which repeats."""
        replies: dict[str, Callable[[Request], str]] = {
            "parameter_proposer": self._propose,
            "critic": self._criticise,
            "policy_author": self._write_policy,
            "feedback_author": lambda _: _module("Describes both ends.", FEEDBACK),
            "reflector": lambda _: REFLECTION,
            "fixer": self._fix,
        }
        return [
            Answer(when=_begins(ROLES[role]), reply=self._counted(role, reply), repeat=True, delay=self.delay)
            for role, reply in replies.items()
        ]

    def _counted(self, role: str, reply: Callable[[Request], str]) -> Callable[[Request], str]:
        def counted(request: Request) -> str:
            if not _is_repair(request):
                self.counts[role] += 1
            return reply(request)

        return counted

    def _random(self, request: Request) -> random.Random:
        digest = hashlib.sha256(request.text().encode()).hexdigest()
        self._sent[digest] += not self.repeatable
        return random.Random(f"{self.seed} {digest} {self._sent[digest]}")

    def _propose(self, request: Request) -> str:
        number, rng, prompt = self.counts["parameter_proposer"], self._random(request), request.text("user")
        form = Form.of(request)
        tried = [([float(value) for value in row.split(",")], float(score)) for row, score in _TRIAL.findall(prompt)]
        tried = [entry for entry in tried if len(entry[0]) == form.size]
        if self._is_due(number, self.duplicate_every) and len(self._latest) == form.size and not _is_repair(request):
            values = self._latest
            self.duplicates += 1
        elif len(tried) < _WARMUP:
            values = form.draw(rng)
        else:
            best = max(tried, key=lambda entry: entry[1])[0]
            values = form.changed(best, rng, changes=max(form.size // 3, 1), step=_step(request, 1.0))
        self._latest = values
        return self._parameters(request, form, values)

    def _criticise(self, request: Request) -> str:
        form, rng = Form.of(request), self._random(request)
        row = _PROPOSED.findall(request.text("user"))[0]
        values = form.clipped([float(value) for value in row.split(",")])
        return self._parameters(request, form, form.changed(values, rng, changes=1, step=_step(request, 0.5)))

    def _parameters(self, request: Request, form: Form, values: list[float]) -> str:
        number = self.counts["parameter_proposer"] + self.counts["critic"]
        if self._is_faulty(request, number, self.bad_every):
            self.bad += 1
            return _bad_reply(BAD_REPLIES[(self.bad - 1) % len(BAD_REPLIES)], values)
        if number % 2 or self.repeatable:
            return f"## Explanation\nA step from the best vector.\n\n```json\n{json.dumps(values)}\n```\n"
        lines = "\n".join(f"params[{index}]: {value:g}" for index, value in enumerate(values))
        return f"## Explanation\nA step from the best vector.\n\n{lines}\n"

    def _write_policy(self, request: Request) -> str:
        number, rng = self.counts["policy_author"], self._random(request)
        if self._is_faulty(request, number, self.bad_code_every):
            self.bad += 1
            return _module("It cannot be parsed.", "class Policy:\n    def act(self, obs:\n        return 0\n")
        if self.policies:
            return _module("As scripted.", self.policies[(number - 1) % len(self.policies)])
        match = re.search(r"^This is round (\d+)", request.text("user"), re.MULTILINE)
        return _module("Gains times observation.", policy_source(request.text(), int(match[1]) if match else 1, rng))

    def _fix(self, request: Request) -> str:
        if "class Feedback" in request.text("system"):
            return _module("Rewritten.", FEEDBACK)
        return _module("Rewritten.", policy_source(request.text(), 9, random.Random(self.seed)))

    def _is_faulty(self, request: Request, number: int, every: int) -> bool:
        return self._is_due(number, every) and (self.bad_repairs or not _is_repair(request))

    @staticmethod
    def _is_due(number: int, every: int) -> bool:
        return every > 0 and number % every == 0


@dataclass(frozen=True)
class Form:
    """The form of parameters as a prompt states it; without limits, values between -1 and 1 are drawn."""

    size: int
    integers: bool
    low: float
    high: float

    @classmethod
    def of(cls, request: Request) -> Form:
        """Read the form from the system message."""
        prompt = request.text("system")
        kind, low, high = _LIMITS.findall(prompt)[0]
        return cls(int(_SIZE.findall(prompt)[0]), kind == "integers", float(low or -1), float(high or 1))

    def draw(self, rng: random.Random) -> list[float]:
        """Return a random vector."""
        return [self._one(rng) for _ in range(self.size)]

    def changed(self, values: list[float], rng: random.Random, *, changes: int, step: float) -> list[float]:
        """Return the vector with some of its parameters changed, by at most ``step`` where they are real numbers."""
        changed = list(values)
        for index in rng.sample(range(self.size), min(changes, self.size)):
            near = round(values[index] + rng.uniform(-step, step), 2)
            changed[index] = self._one(rng) if self.integers else near
        return self.clipped(changed)

    def clipped(self, values: list[float]) -> list[float]:
        """Return the vector within the limits."""
        return [min(max(value, self.low), self.high) for value in values]

    def _one(self, rng: random.Random) -> float:
        return (
            rng.randint(int(self.low), int(self.high)) if self.integers else round(rng.uniform(self.low, self.high), 1)
        )


def policy_source(prompt: str, round_number: int, rng: random.Random) -> str:
    """Return a policy for the environment of a prompt; gains of later rounds are closer to good ones."""
    if "CartPole-v1" in prompt:
        # Without the cart's position a policy drifts out of the track; the first round ignores it.
        centring = 0.0 if round_number == 1 else 0.1
        gains = {"position": centring, "velocity": 2 * centring, "angle": 3.0, "rate": 0.5 * round_number}
        return CART_POLE.format(**{name: round(value * rng.uniform(0.8, 1.2), 3) for name, value in gains.items()})
    if "NoiseWorld" in prompt:
        # The first round goes straight to code 5, through noise; later ones avoid it, and visit codes 6 and 7 before.
        costs = {"reset": 1.0, "stay": 1.0} if round_number == 1 else {"reset": 8.0, "stay": 2.0}
        varied = {name: round(cost * rng.uniform(1.0, 1.1), 3) for name, cost in costs.items()}
        return NOISE_WORLD.format(targets="(5,)" if round_number == 1 else "(6, 7, 5)", **varied)
    numbers = _ACTIONS.findall(prompt)
    choices = re.findall(r"^Action: an integer from 0 to (\d+)", prompt, re.MULTILINE)
    action = f"self.random.randint(0, {choices[0]})" if choices else f"[0.0] * {numbers[0] if numbers else 1}"
    return RANDOM.format(seed=rng.randrange(10**6), action=action)


def _bad_reply(kind: str, values: list[float]) -> str:
    lines = [f"params[{index}]: {value:g}" for index, value in enumerate(values)]
    match kind:
        case "missing":
            lines = lines[:-1]
        case "doubled":
            lines.append("On reflection, params[0]: 0.25 would have been better.")
        case "text":
            lines[0] = "params[0]: zero"
        case "surplus":
            lines.append(f"params[{len(values)}]: 0")
        case _:
            lines = ["I would rather explore the middle of the range first."]
    return "\n".join(lines) + "\n"


def _module(explanation: str, source: str) -> str:
    return f"## Explanation\n{explanation}\n\n```python\n{source}```\n"


def _step(request: Request, default: float) -> float:
    steps = _STEP.findall(request.text())
    return float(steps[0]) if steps else default


def _is_repair(request: Request) -> bool:
    return sum(message.get("role") == "user" for message in request.body.get("messages", [])) > 1


def _begins(words: str) -> Callable[[Request], bool]:
    return lambda request: request.text("system").startswith(words)
