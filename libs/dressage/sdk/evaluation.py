"""Episodes of a policy on stock Gymnasium or in a process of a pack, compared with the random policy on equal seeds.

`evaluate` is what `dressage.evaluate` is; `measure` is shared with `dressage eval`. Neither uses the batched simulation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dressage.errors import InvalidArgument
from dressage.policies import Policy, ProgramPolicy
from dressage.sdk.argument_names import python_names
from dressage.sdk.arguments import environment_id, own_environments
from dressage.sdk.code_policy import SandboxedPolicy
from dressage.statistics import bootstrap_interval

if TYPE_CHECKING:
    from dressage.envs.options import EnvOptions
    from dressage.envs.reference import Policy as Actor
    from dressage.envs.trajectory import Trajectory

FIRST_SEED = 3_000_000
"""Seed of the first episode, far from those of training and judging."""
_TOGETHER = 16
"""Episodes in lockstep. A recorded step takes some 10 kB, so that these take 160 MB where they last 1,000 steps."""


@dataclass(frozen=True)
class Episodes:
    """The results of some episodes of one policy."""

    returns: tuple[float, ...]
    """Stock return of each episode, undiscounted."""
    lengths: tuple[int, ...]
    """Steps of each episode."""
    speeds: tuple[float, ...] | None
    """Mean forward speed of each episode in m/s; None where the environment has no such field."""
    seconds: float

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def return_interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the mean return."""
        return bootstrap_interval(self.returns)

    @property
    def mean_length(self) -> float:
        """Mean of the lengths, in steps."""
        return float(np.mean(self.lengths))

    @property
    def mean_speed(self) -> float | None:
        """Mean forward speed in m/s, or None."""
        return None if self.speeds is None else float(np.mean(self.speeds))

    def to_dict(self) -> dict[str, Any]:
        """Return means with 95 % bootstrap intervals, and throughput."""
        facts: dict[str, Any] = {
            "episodes": len(self.returns),
            "mean_return": self.mean_return,
            "return_interval": list(self.return_interval),
            "return_std": self.std_return,
            "mean_length": self.mean_length,
            "mean_speed": self.mean_speed,
            "speed_interval": None,
            "steps_per_second": sum(self.lengths) / self.seconds if self.seconds > 0 else None,
        }
        if self.speeds is not None:
            facts["speed_interval"] = list(bootstrap_interval(self.speeds))
        return facts


@dataclass(frozen=True)
class Evaluation(Episodes):
    """The episodes of a policy, and those of the random policy on the same seeds."""

    environment: str
    seed: int
    """Seed of the first episode; the following episodes have the following seeds."""
    random: Episodes | None = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        rows = [("policy", self), *([("random", self.random)] if self.random is not None else [])]
        cells = "".join(
            f"<tr><td>{name}</td><td>{part.mean_return:.1f}</td><td>{part.return_interval[0]:.1f} to "
            f"{part.return_interval[1]:.1f}</td><td>{part.mean_length:.0f}</td>"
            f"<td>{'' if part.mean_speed is None else f'{part.mean_speed:.2f}'}</td></tr>"
            for name, part in rows
        )
        head = "".join(f"<th>{name}</th>" for name in ("", "mean return", "95 % interval", "steps", "m/s"))
        return f"<b>{escape(self.environment)}</b>, {len(self.returns)} episodes<table><tr>{head}</tr>{cells}</table>"


def evaluate(
    policy: Any,
    env: str | None = None,
    *,
    episodes: int = 20,
    seed: int = FIRST_SEED,
    env_options: Mapping[str, Any] | None = None,
    random_baseline: bool = True,
    address: str | None = None,
    token: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Evaluate a policy on stock Gymnasium, or in a process of the environment's pack. Rewards are the environment's own.

    :param policy: a policy of `dressage.load`, whatever `dressage.load` accepts, an object with `predict` as in
        Stable-Baselines3, or a function from an observation (D,) to an action.
    :param env: environment id, such as ``Hopper-v5``; by default the one that the policy was trained in.
    :param episodes: how many, 1 to 10,000.
    :param seed: seed of the first episode; the following ones have the following seeds.
    :param env_options: ``max_episode_steps``, ``terminate_when_unhealthy`` or ``reset_noise_scale``; by default those that
        the policy was trained with.
    :param random_baseline: whether to run the random policy on the same seeds as well.
    :param address: server of the session, where ``policy`` is a session's name; by default this machine's data folder.
    :param token: bearer token for the server.
    :param data_dir: data folder of this machine; by default ``$DRESSAGE_HOME``, else the platform's folder.
    :raises InvalidArgument: for a wrong number of episodes, a missing environment or a wrong option.
    :raises NotFound: for an unknown environment, session or file.
    :raises FailedPrecondition: if the environment's pack is not installed or does not work.
    """
    if not isinstance(episodes, int) or isinstance(episodes, bool) or not 1 <= episodes <= 10_000:
        raise InvalidArgument(field="episodes", value=episodes, expected="a whole number from 1 to 10000")
    if isinstance(policy, str | bytes | os.PathLike):
        from dressage.sdk.policy import load

        policy = load(policy, address=address, token=token, data_dir=data_dir)
    if isinstance(policy, ProgramPolicy):
        _refuse_other_task(policy, env, env_options)
        part = program_episodes(policy, range(seed, seed + episodes))
        return Evaluation(part.returns, part.lengths, part.speeds, part.seconds, policy.environment, seed)
    with python_names(), own_environments(data_dir):
        from dressage.envs.options import EnvOptions

        card = policy.description if isinstance(policy, Policy | SandboxedPolicy) else None
        if env is None and card is None:
            raise InvalidArgument(field="env", value=env, expected="an environment id, such as Hopper-v5")
        environment = environment_id(env) if env is not None else str(card and card.environment)
        if env_options is None and card is not None and card.environment == environment:
            env_options = card.environment_options
        options = EnvOptions.from_dict(env_options or {})
        seeds = range(seed, seed + episodes)
        actor, together = _actor(policy)
        part = run_episodes(actor, environment, options, seeds, together=together)
        random = run_episodes(random_actions(environment), environment, options, seeds) if random_baseline else None
    return Evaluation(part.returns, part.lengths, part.speeds, part.seconds, environment, seed, random)


def _refuse_other_task(policy: ProgramPolicy, env: str | None, options: Mapping[str, Any] | None) -> None:
    """:raises InvalidArgument: for another environment than the program's, or for options."""
    if env is not None and environment_id(env) != policy.environment:
        raise InvalidArgument(
            field="env", value=env, expected=f"{policy.environment}, the task of the program, or none"
        )
    if options:
        raise InvalidArgument(
            field="env_options", value=dict(options), expected="none: a program's task has no options"
        )


def program_episodes(policy: ProgramPolicy, states: Sequence[int]) -> Episodes:
    """Play a program from initial states in its engine.

    :raises NotFound: for an unknown task.
    :raises InvalidArgument: for a damaged program.
    """
    from dressage.local.kernels import use_kernels
    from dressage.programs.families import program_task

    use_kernels()
    task = program_task(policy.environment, policy.profile)
    begin = time.perf_counter()
    outcomes = task.play(task.parse(policy.program), states)
    seconds = time.perf_counter() - begin
    return Episodes(tuple(o.reward for o in outcomes), tuple(o.steps for o in outcomes), None, seconds)


def _actor(policy: Any) -> tuple[Callable[[int], Actor], int]:
    """Return what gives the policy of a part by its first seed, and for how many episodes at once it acts."""
    if isinstance(policy, SandboxedPolicy):
        return _code_episode(policy), 1
    if isinstance(policy, Policy):
        return lambda _: policy.act, _TOGETHER
    if callable(getattr(policy, "predict", None)):
        return lambda _: lambda observation: policy.predict(observation, deterministic=True)[0], _TOGETHER
    if callable(policy):
        return lambda _: lambda observation: np.stack([np.asarray(policy(row)) for row in observation]), _TOGETHER
    expected = "a policy, a path, a session, an object with predict(), or a function from observation to action"
    raise InvalidArgument(field="policy", value=policy, expected=expected)


def _code_episode(policy: SandboxedPolicy) -> Callable[[int], Actor]:
    def begin(_: int) -> Actor:
        policy.reset()
        return lambda observation: policy.act_all(observation, [0])

    return begin


def measure(policy: Policy | SandboxedPolicy | ProgramPolicy, *, episodes: int, seed: int) -> dict[str, Any]:
    """Facts about episodes of a policy and of the random one, on equal seeds; those of a program are without a random one.

    An episode depends on its seed alone, not on how many are run: the random policy begins anew with each. A trained
    policy's actions for several observations at once may differ from those for one in the last bits.
    """
    from dressage.envs.options import EnvOptions

    seeds = range(seed, seed + episodes)
    if isinstance(policy, ProgramPolicy):
        return {"policy": program_episodes(policy, seeds).to_dict()}
    card = policy.description
    options = EnvOptions.from_dict(card.environment_options)
    actor, together = _actor(policy)
    trained = run_episodes(actor, card.environment, options, seeds, together=together)
    random = run_episodes(random_actions(card.environment), card.environment, options, seeds)
    return {"policy": trained.to_dict(), "random": random.to_dict()}


def record(policy: Policy | SandboxedPolicy, *, seed: int = FIRST_SEED) -> Trajectory:
    """Record one episode of a policy in its own environment."""
    from dressage.envs.options import EnvOptions
    from dressage.envs.reference import rollout

    card = policy.description
    actor, _ = _actor(policy)
    options = EnvOptions.from_dict(card.environment_options)
    (trajectory,) = rollout(actor(seed), card.environment, [seed], options, batched=True)
    return trajectory


def random_actions(environment: str) -> Callable[[int], Actor]:
    """Return what makes the random policy of an episode from the episode's seed."""
    from dressage.envs.reference import random_policy

    # A stream of its own: that of the bare seed is what Gymnasium draws the first state from.
    return lambda first: random_policy(environment, int(np.random.SeedSequence((first, 1)).generate_state(1)[0]))


def run_episodes(
    policy: Callable[[int], Actor], environment: str, options: EnvOptions, seeds: range, *, together: int = 1
) -> Episodes:
    """Run one episode per seed. Recordings are large, so that only those of one part are held at a time.

    An environment of a pack is played in a process of the pack, one of the user's own module in a sandboxed process.

    :param policy: the policy of a part, by its first seed.
    :param together: episodes of a part, which run in lockstep.
    """
    from dressage.envs import custom
    from dressage.envs.reference import rollout
    from dressage.sdk import pack_episodes

    card = options.check(environment)
    if card.pack or custom.module_of(card.id):
        begin = time.perf_counter()
        played = pack_episodes.play(policy, card, options, seeds, together=together)
        return Episodes(tuple(played[0]), tuple(played[1]), None, time.perf_counter() - begin)
    returns: list[float] = []
    lengths: list[int] = []
    speeds: list[float] = []
    begin = time.perf_counter()
    for start in range(0, len(seeds), together):
        part = seeds[start : start + together]
        for trajectory in rollout(policy(part[0]), environment, part, options, batched=True):
            returns.append(float(np.sum(trajectory.reward)))
            lengths.append(trajectory.num_steps)
            if "x_velocity" in trajectory.fields:
                speeds.append(float(np.mean(trajectory.x_velocity[1:])))
    seconds = time.perf_counter() - begin
    moves = len(speeds) == len(returns)
    return Episodes(tuple(returns), tuple(lengths), tuple(speeds) if moves else None, seconds)
