"""Whole episodes of search candidates per second, compared with the loops of R2PO and PromptPO.

- ``cartpole``: a near-optimal linear policy on CartPole-v1, 20 episodes a candidate. Limit: the compiled rules alone, with a
  push that follows the pole, on as many threads.
- ``swimmer``: random linear policies on Swimmer-v5. Limit: bare `mujoco.batch` stepping as many simulations.
- ``noiseworld``: a code policy on NoiseWorld1-v0 that looks its moves up: ours in its sandboxed process, the environment in
  another, whose start is included, 4,000 episodes a candidate; the peer's in the simulator's own process, 5 episodes a
  candidate. ``ours_round``: 10 candidates with 5 episodes each, their processes started 1 s before or earlier.
  Limit: the same policy and the compiled rules in one process.
- ``planner``: the same with a recorded policy that plans its way at each step, and 200 episodes a candidate.

The peers are restated in plain Gymnasium code here. R2PO makes the environment anew at each reset and writes a line a step to a
log; ``peer_lean`` leaves both out. PromptPO makes one environment a candidate, executes the policy's source, keeps all
observations and computes each reward again; ``peer_lean`` leaves this out. Each kind is measured in turn, on the same cores.
Compilation and imports are left out. ``processor`` has the episodes for each second of processor time of all processes, which
other load on the machine changes little; times ``cores`` it is the rate of cores without other load. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import gymnasium
import numpy as np
from dressage.serving import logs

PACKAGES = ("dressage", "gymnasium", "mujoco", "numba", "numpy")
EPISODES, CODE_EPISODES = 20, 5
ROUND = 10
"""Candidates of a round of PromptPO."""
BATCH, BATCHES = 2000, 2
"""Episodes in lockstep of 100 steps each, and batches of one process, as in an evaluation."""
NOISE_WORLD = "NoiseWorld1-v0"
PLANNER = Path(__file__).parents[1] / "examples/behaviours/noise_world/llm/iterations/3/policy_author/1/0-0.md"
PLANNED = 100
"""Episodes in lockstep of the planner, which takes longer."""
BALANCING = np.array([0.0, -0.1, -1.0, -1.0, 0.0, 0.1, 1.0, 1.0])
CANDIDATES = 50
ROWS = 260
"""Simulations of one engine that step together: episodes of 13 candidates."""
ROUTE = """
class Policy:
    MOVES = {moves}

    def reset(self):
        pass

    def act(self, obs):
        return self.MOVES[int(obs[0]) * {size} + int(obs[1])]
"""
Rate = Callable[[float], float]
"""Measures for so many seconds; returns whole episodes per second."""


def repeated(play: Callable[[], int], seconds: float) -> float:
    """Return episodes per second of a function that plays some and returns their number."""
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or count == 0:
        count += play()
    return count / spent


# -- the peers' loops


def r2po(env_id: str, matrix: np.ndarray, *, discrete: bool, lean: bool) -> Rate:
    """R2PO's loop with a linear policy, one episode after another.

    :param lean: reuse the environment, and write no log.
    """
    kept, seeds = gymnasium.make(env_id), iter(range(10**9))

    def play() -> int:
        env = kept if lean else gymnasium.make(env_id)
        observation, _ = env.reset(seed=next(seeds))
        ended = False
        with tempfile.TemporaryFile("w") as log:
            step = 0
            while not ended:
                output = observation @ matrix
                action = int(np.argmax(output)) if discrete else np.clip(output, -1, 1).astype(np.float32)
                after, reward, terminated, truncated, _ = env.step(action)
                if not lean:
                    log.write(f"{step} | {observation} | {action} | {reward}\n")
                observation, ended, step = after, terminated or truncated, step + 1
        if not lean:
            env.close()
        return 1

    return lambda seconds: repeated(play, seconds)


def promptpo(env_id: str, source: str, *, lean: bool) -> Rate:
    """PromptPO's loop with a policy's source, one candidate after another.

    :param lean: reuse the environment and the policy, keep no observations, and take the environment's rewards.
    """
    import dressage.envs.small  # noqa: F401  (registers it)
    from dressage.envs.catalogue.noise_world.rules import BOARDS, GOAL, TRAP

    board = BOARDS[int(env_id[10])]
    codes = [code for row in board.codes for code in row]
    kept, seeds = gymnasium.make(env_id), iter(range(10**9))

    def paid(after: np.ndarray) -> float:
        code = codes[int(after[0]) * board.size + int(after[1])]
        return -1.0 + (board.size**3 if code == GOAL else 0) - (board.size**5 if code == TRAP else 0)

    def play() -> int:
        env, scope = kept if lean else gymnasium.make(env_id), dict[str, Any]()
        exec(source, scope)
        policy = scope["Policy"]()
        for _ in range(CODE_EPISODES):
            observation, _ = env.reset(seed=next(seeds))
            policy.reset()
            total, ended, observations = 0.0, False, [observation]
            while not ended:
                observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
                if not lean:
                    observations.append(observation)
                    reward = paid(observation)
                total, ended = total + float(reward), terminated or truncated
        return CODE_EPISODES

    return lambda seconds: repeated(play, seconds)


# -- ours, and its limits


def searched(env_id: str, parameters: np.ndarray, *, cores: int) -> Rate:
    """The engine as a search uses it: a thread for each core, each with candidates of its own."""
    from dressage.envs.cards import load_card
    from dressage.episodes.choice import episode_engine
    from dressage.policies.kinds import PolicySpec

    spec = PolicySpec.of("linear", load_card(env_id), bias=False)
    engines = [episode_engine(env_id, spec, range(EPISODES)) for _ in range(cores)]
    pool = ThreadPoolExecutor(cores)

    def play() -> int:
        parts = list(pool.map(lambda engine: engine.play(parameters).returns.size, engines))  # type: ignore[union-attr]
        return sum(parts)

    play()
    return lambda seconds: repeated(play, seconds)


def bare_cart_pole(steps: int, *, cores: int) -> Rate:
    """The compiled rules of CartPole alone."""
    from dressage.episodes.kernels import compiled_rules
    from numba import njit

    rules = compiled_rules("CartPole-v1")
    start, advance = rules.start, rules.step

    @njit(nogil=True, error_model="numpy")
    def play_some(episodes: int, length: int) -> float:
        state, action, total = np.zeros(4), np.zeros(1, np.float32), 0.0
        draws = np.array([0.01, -0.02, 0.03, 0.01])
        for _ in range(episodes):
            start(state, draws)
            for _ in range(length):
                reward, _ = advance(state, 1 if state[2] + state[3] > 0 else 0, action, draws, 4)
                total += reward
        return total

    pool, episodes = ThreadPoolExecutor(cores), 500
    play_some(1, steps)

    def play() -> int:
        list(pool.map(lambda _: play_some(episodes, steps), range(cores)))
        return cores * episodes

    return lambda seconds: repeated(play, seconds)


def swimming(parameters: np.ndarray, *, cores: int) -> Rate:
    """The engine of simulations as a search uses it: a thread for each core, each with candidates of its own."""
    from dressage.envs.cards import load_card
    from dressage.episodes.simulated import SimulatedEpisodes
    from dressage.policies.kinds import PolicySpec

    spec = PolicySpec.of("linear", load_card("Swimmer-v5"), bias=False)
    engines = [SimulatedEpisodes("Swimmer-v5", spec, range(EPISODES)) for _ in range(cores)]
    pool, count = ThreadPoolExecutor(cores), ROWS // EPISODES

    def play() -> int:
        return sum(pool.map(lambda engine: engine.play(parameters[:count]).returns.size, engines))

    play()
    return lambda seconds: repeated(play, seconds)


def bare_swimmer(*, cores: int) -> Rate:
    """Bare `mujoco.batch` stepping as many simulations, in episodes of 1,000 steps."""
    from support.bare import rate

    return lambda seconds: rate("Swimmer-v5", cores * ROWS, cores, seconds) / 1000


def route(env_id: str) -> str:
    """Return the source of a policy that follows a shortest way around traps, found breadth first."""
    from dressage.envs.catalogue.noise_world.rules import BOARDS, GOAL, MOVES, TRAP, WALL

    board = BOARDS[int(env_id[10])]
    size = board.size
    goals = [(row, column) for row in range(size) for column in range(size) if board.codes[row][column] == GOAL]
    moves, queue = [0] * size**2, list(goals)
    known = set(goals)
    for row, column in queue:
        for action, (down, right) in enumerate(MOVES):
            before = (row - down, column - right)
            inside = all(0 <= part < size for part in before)
            if inside and before not in known and board.codes[before[0]][before[1]] not in (WALL, TRAP, GOAL):
                known.add(before)
                queue.append(before)
                moves[before[0] * size + before[1]] = action
    return ROUTE.format(moves=moves, size=size)


def sandboxed(
    env_id: str, source: str, *, cores: int, scratch: Path, batch: int
) -> tuple[Rate, Rate, Callable[[], None]]:
    """Code candidates as an evaluation plays them: one thread for each core, each with a player and the policy's process.

    :returns: the rate of candidates with as many episodes as one process plays, its start included; the rate of a round of
        `ROUND` candidates with `CODE_EPISODES` each, whose processes were started before, as between rounds; what ends both.
    """
    from dressage.contracts.policy_host import PlayLimits, TimeBudget
    from dressage.contracts.spaces import Spaces
    from dressage.envs.cards import load_card
    from dressage_trainer.evaluation.code_player import SANDBOX as POLICY_SANDBOX
    from dressage_trainer.evaluation.code_player import CodeTask, GeneratedProcess, play_part
    from dressage_trainer.evaluation.player_pool import SANDBOX, Player
    from dressage_trainer.lease.compiled import CompiledCache
    from dressage_trainer.lease.sandboxes import Sandboxes

    sandboxes = Sandboxes(scratch / "sandboxes")
    compiled = CompiledCache(scratch / "compiled", sandboxes)
    compiled.prepare_kernels(env_id)
    limits = PlayLimits()
    task = CodeTask(source=source, environment=env_id, options={}, spaces=Spaces.of(load_card(env_id)), limits=limits)
    players = [Player(sandboxes, compiled.with_kernels(SANDBOX)) for _ in range(cores)]
    pool, idle = ThreadPoolExecutor(cores), SimpleQueue[Player]()
    for player in players:
        idle.put(player)

    def candidate(first: int, count: int) -> int:
        player = idle.get()
        try:
            process = GeneratedProcess(sandboxes, "dressage.contracts.policy_process:play")
            budget, seeds = TimeBudget(limits.candidate_seconds), range(first, first + count)
            played = play_part(task, seeds, start=0, budget=budget, player=player, process=process, batch=batch)
            return len(played.returns)
        finally:
            idle.put(player)

    def play() -> int:
        return sum(pool.map(lambda index: candidate(index * batch * BATCHES, batch * BATCHES), range(cores)))

    def rounds(seconds: float) -> float:
        sandboxes.keep_ready("code", lambda: {POLICY_SANDBOX: ROUND})
        spent, count = 0.0, 0
        while spent < seconds:
            sandboxes.refill()
            time.sleep(1.0)  # they import their libraries
            began = time.perf_counter()
            count += sum(pool.map(lambda index: candidate(index * CODE_EPISODES, CODE_EPISODES), range(ROUND)))
            spent += time.perf_counter() - began
        sandboxes.keep_ready("code", dict)
        sandboxes.refill()
        return count / spent

    def close() -> None:
        for player in players:
            player.end()
        sandboxes.close()

    play()
    return lambda seconds: repeated(play, seconds), rounds, close


def in_process(env_id: str, source: str, *, count: int) -> Rate:
    """The same policy and the compiled rules in one process."""
    from dressage.envs.options import EnvOptions
    from dressage.episodes.choice import lockstep

    scope: dict[str, Any] = {}
    exec(source, scope)
    policy, simulation = scope["Policy"](), lockstep(env_id, EnvOptions())
    assert simulation is not None
    policy.reset()

    def play() -> int:
        seen, rows = simulation.reset(range(count)), np.arange(count)
        while len(rows):
            actions = np.array([policy.act(row) for row in seen])
            seen, _, ends, _ = simulation.step(rows, actions)
            seen, rows = seen[~ends], rows[~ends]
        return count

    play()
    return lambda seconds: repeated(play, seconds)


# -- the parts of the report


def cartpole(cores: int, scratch: Path) -> tuple[dict[str, Rate], Callable[[], None]]:
    """Measurements of CartPole-v1."""
    matrix = BALANCING.reshape(2, 4).T
    return {
        "ours": searched("CartPole-v1", np.repeat(BALANCING[None], CANDIDATES, axis=0), cores=cores),
        "peer": r2po("CartPole-v1", matrix, discrete=True, lean=False),
        "peer_lean": r2po("CartPole-v1", matrix, discrete=True, lean=True),
        "limit": bare_cart_pole(500, cores=cores),
    }, lambda: None


def swimmer(cores: int, scratch: Path) -> tuple[dict[str, Rate], Callable[[], None]]:
    """Measurements of Swimmer-v5."""
    parameters = np.random.default_rng(0).standard_normal((CANDIDATES, 16))
    matrix = parameters[0].reshape(2, 8).T
    return {
        "ours": swimming(parameters, cores=cores),
        "peer": r2po("Swimmer-v5", matrix, discrete=False, lean=False),
        "peer_lean": r2po("Swimmer-v5", matrix, discrete=False, lean=True),
        "limit": bare_swimmer(cores=cores),
    }, lambda: None


def noiseworld(cores: int, scratch: Path) -> tuple[dict[str, Rate], Callable[[], None]]:
    """Measurements of NoiseWorld1-v0 with a policy whose act takes at most 2 µs."""
    return code_on_noise_world(route(NOISE_WORLD), cores, scratch, batch=BATCH)


def planner(cores: int, scratch: Path) -> tuple[dict[str, Rate], Callable[[], None]]:
    """Measurements of NoiseWorld1-v0 with the recorded policy that plans at each step."""
    (source,) = re.findall(r"```python\n(.*?)```", PLANNER.read_text("utf-8"), re.DOTALL)
    return code_on_noise_world(source, cores, scratch, batch=PLANNED)


def code_on_noise_world(
    source: str, cores: int, scratch: Path, *, batch: int
) -> tuple[dict[str, Rate], Callable[[], None]]:
    """Measurements of one policy for both sides; ours plays so many episodes in lockstep."""
    env_id = NOISE_WORLD
    ours, rounds, close = sandboxed(env_id, source, cores=cores, scratch=scratch, batch=batch)
    return {
        "ours": ours,
        "ours_round": rounds,
        "peer": promptpo(env_id, source, lean=False),
        "peer_lean": promptpo(env_id, source, lean=True),
        "limit": in_process(env_id, source, count=batch // 4),
    }, close


PARTS = {"cartpole": cartpole, "swimmer": swimmer, "noiseworld": noiseworld, "planner": planner}
WHAT = {
    "cartpole": "Episodes of CartPole-v1, a near-optimal linear policy; peer: R2PO's loop",
    "swimmer": "Episodes of Swimmer-v5, linear policies; peer: R2PO's loop",
    "noiseworld": "Episodes of NoiseWorld1-v0, a code policy in its sandbox; peer: PromptPO's loop, not sandboxed",
    "planner": "The same with a code policy that plans at each step",
}
NOTES = {
    "cartpole": "limit: the compiled rules alone",
    "swimmer": "limit: bare mujoco.batch stepping as many simulations",
    "noiseworld": "limit: the same policy and the compiled rules in one process",
    "planner": "limit: the same policy and the compiled rules in one process on one core",
}


def measured(rates: Mapping[str, Rate], *, repeats: int, seconds: float) -> dict[str, Any]:
    """Measure in turn, so that other load falls on all alike; return medians and ratios."""
    from support.processor import tree_seconds

    seen: dict[str, list[float]] = {name: [] for name in rates}
    spent: dict[str, list[float]] = {name: [] for name in rates if not name.endswith("_round")}  # these pause
    shares = []
    for _ in range(repeats):
        for name, rate in rates.items():
            before, began = tree_seconds(), time.perf_counter()
            seen[name].append(rate(seconds))
            if name in spent:
                episodes = seen[name][-1] * (time.perf_counter() - began)
                spent[name].append(episodes / max(tree_seconds() - before, 0.01))
        shares.append(seen["ours"][-1] / seen["limit"][-1])
    medians = {name: statistics.median(values) for name, values in seen.items()}
    processor = {name: statistics.median(values) for name, values in spent.items()}
    return {
        **{name: round(value, 2) for name, value in medians.items()},
        "ratio": round(medians["ours"] / medians["peer"], 1),
        "ratio_lean": round(medians["ours"] / medians["peer_lean"], 1),
        "share_of_limit": round(statistics.median(shares), 3),
        "processor": {name: round(value, 2) for name, value in processor.items()},
        "processor_share_of_limit": round(processor["ours"] / processor["limit"], 3),
        "spread": {name: [round(min(values), 2), round(max(values), 2)] for name, values in seen.items()},
    }


def main() -> int:
    """Measures in turn and prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cores", type=int, default=min(2, len(os.sched_getaffinity(0))), help="cores of each measurement"
    )
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each kind")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of a measurement, at least")
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    given = parser.parse_args()
    logs.configure(format="text")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    sys.path.insert(0, str(Path(__file__).parent))
    parts: dict[str, dict[str, Any]] = {}
    for name, part in PARTS.items():
        if given.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                rates, close = part(given.cores, Path(folder))
                try:
                    figures = measured(rates, repeats=given.repeats, seconds=given.seconds)
                finally:
                    close()
            parts[name] = {"what": WHAT[name], "unit": "episodes/s", **figures}
    notes = [
        f"{name}: {part['ratio_lean']} times a lean peer; for each second of processor time {part['processor']['ours']:,.0f} "
        f"episodes, the peer {part['processor']['peer']:,.0f}, the limit {part['processor']['limit']:,.0f}; {NOTES[name]}"
        for name, part in parts.items()
    ]
    report = {
        "name": "search_rollouts",
        **next(iter(parts.values())),
        "spread": {name: part["spread"] for name, part in parts.items()},
        "rows": list(parts.values()),
        **parts,
        "repeats": given.repeats,
        "cores": given.cores,
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "notes": ". ".join(notes),
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
