"""Baselines of Stable-Baselines3 with the episodes of a search: the library's algorithms and default hyperparameters.

One environment trains. After each training episode the deterministic policy plays the search's episodes, as a candidate
does, and both count. A discrete observation is one-hot. The library's defaults hold but for two: the replay buffer has room
for the whole training, not more, which changes no result; and the length of the training, which some schedules depend on, is
that of the longest possible episodes. Fused updates change the rounding alone.

PyTorch uses one thread, so that a baseline that restarts on another number of cores ends in the same result; evaluations use
all cores. A baseline cannot continue from a state: after an interruption it restarts from its seed.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import gymnasium
import numpy as np
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.envs.stock import make_stock, source_of
from dressage.errors import InvalidArgument
from dressage.installation import install_command
from dressage.policies.sb3_baselines import BASELINES, training_episodes
from numpy.typing import NDArray

from dressage_trainer.search.engine import Improvement, Progress
from dressage_trainer.search.messages import SearchTask
from dressage_trainer.search.scoring import Scorer, Scores, scorer

Array = NDArray[Any]
_TICK_SECONDS = 0.1
_BUFFER = 1_000_000
"""The library's default."""
_OFF_POLICY = ("sb3_dqn", "sb3_ddpg", "sb3_td3", "sb3_sac")


class BaselineSearch:
    """One baseline, with the interface of `engine.Search` but for `advance`: `run` calls back instead.

    :param tick: called about ten times a second, in the caller's thread.
    :raises InvalidArgument: if the packages are missing.
    """

    def __init__(
        self, task: SearchTask, *, tick: Callable[[], None] = lambda: None, play: Scorer | None = None
    ) -> None:
        check_installed(task.algorithm)
        self._task, self._tick = task, tick
        self._scorer = play or scorer(task)
        self._threads = ThreadPoolExecutor(task.threads, thread_name_prefix="score")
        self._allowed = training_episodes(budget=task.budget, episodes=task.episodes)
        self._last: tuple[Array, float, int] | None = None
        self._ticked = time.monotonic()
        self.progress = Progress()

    def __enter__(self) -> BaselineSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    @property
    def done(self) -> bool:
        """Whether the episodes are used or the target reached."""
        target, progress = self._task.target, self.progress
        return progress.evaluated >= self._allowed or (target is not None and progress.best_score >= target)

    def run(self, *, on_improvement: Callable[[Improvement], None], boundary: Callable[[], None]) -> None:
        """Train to the end.

        :param on_improvement: called with each better policy.
        :param boundary: called after each evaluation.
        """
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        env = TrainingEnv(self._task)
        model = make_model(self._task, env, training_steps=self._allowed * env.longest_episode)
        callbacks = importlib.import_module("stable_baselines3.common.callbacks")

        def step(local: Mapping[str, Any], _: object) -> bool:
            if time.monotonic() - self._ticked >= _TICK_SECONDS:
                self._ticked = time.monotonic()
                self._tick()
            if not local["dones"][0]:
                return True
            better = self._record(vector_of(self._task.algorithm, model), steps=env.episode_steps())
            if better is not None:
                on_improvement(better)
            boundary()
            return not self.done

        try:
            model.learn(self._allowed * env.longest_episode, callback=callbacks.ConvertCallback(step))
        finally:
            env.close()

    def _record(self, vector: Array, *, steps: int) -> Improvement | None:
        """Count a training episode, evaluate the policy and return the improvement if it is one.

        :param steps: of the training episode.
        """
        progress = self.progress
        if self._last is None or not np.array_equal(vector, self._last[0]):
            scores = self._wait_for(self._threads.submit(self._scorer.score, vector[None]))
            if not self._scorer.exact and float(scores.returns.mean()) > progress.best_score:
                scores = self._wait_for(self._threads.submit(self._scorer.confirm, vector))
            self._last = (vector, float(scores.returns.mean()), int(scores.lengths.sum()))
        # An unchanged policy would play the same episodes again: they count, but are not repeated.
        _, score, played = self._last
        evaluated = progress.evaluated + 1
        better = Improvement(evaluated, score, vector) if score > progress.best_score else None
        self.progress = Progress(
            evaluated=evaluated,
            env_steps=progress.env_steps + steps + played,
            best_score=score if better else progress.best_score,
            best_parameters=vector if better else progress.best_parameters,
            improvements=(*progress.improvements, (evaluated, score)) if better else progress.improvements,
        )
        return better

    def _wait_for(self, future: Future[Scores]) -> Scores:
        while wait([future], timeout=_TICK_SECONDS).not_done:
            self._tick()
        return future.result()

    def state(self) -> dict[str, Any]:
        """Return the state of a search that has not begun: an interrupted baseline restarts."""
        return {
            "task": self._task.identity(),
            "algorithm": {},
            "evaluated": 0,
            "env_steps": 0,
            "improvements": [],
            "best_parameters": np.zeros(0),
        }


class TrainingEnv(gymnasium.Env[Array, Any]):
    """The reference environment of a search, with flat observations in single precision and the spaces of its card."""

    def __init__(self, task: SearchTask) -> None:
        options = EnvOptions(**task.options)
        self._card: EnvironmentCard = options.check(task.environment)
        self._env = make_stock(self._card, options)
        self._source = source_of(self._card, self._env)
        self.longest_episode = int(options.max_episode_steps or self._card.max_episode_steps)
        self._steps = self._last_episode_steps = 0
        card = self._card
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (card.observation_size,), np.float32)
        self.action_space: gymnasium.Space[Any]
        if card.num_actions:
            self.action_space = gymnasium.spaces.Discrete(card.num_actions)
        else:
            low, high = ([getattr(part, name) for part in card.action] for name in ("low", "high"))
            self.action_space = gymnasium.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        observation, _ = self._env.reset(seed=seed)
        self._last_episode_steps, self._steps = self._steps, 0
        return self._flat(observation), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply an action for one time step."""
        choice = int(action) if self._card.num_actions else np.asarray(action)
        observation, reward, terminated, truncated, _ = self._env.step(self._source.action(np.asarray(choice)))
        self._steps += 1
        return self._flat(observation), float(reward), bool(terminated), bool(truncated), {}

    def episode_steps(self) -> int:
        """Return the steps of the last episode that has ended; the library has begun the next one by then."""
        return self._last_episode_steps

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _flat(self, observation: Any) -> Array:
        return np.asarray(self._source.flat(observation), np.float32)


def check_installed(algorithm: str) -> None:
    """Check that the packages of a baseline are installed.

    :raises InvalidArgument: with the remedy.
    """
    packages = ("torch", "stable_baselines3", BASELINES[algorithm].package)
    if missing := [name for name in dict.fromkeys(packages) if importlib.util.find_spec(name) is None]:
        message = (
            f"algorithm: {algorithm} needs {', '.join(missing)} where the trainer runs. "
            f"Install them with {install_command('sb3')}."
        )
        raise InvalidArgument(message, field="algorithm", reason="MISSING_PACKAGE")


def make_model(task: SearchTask, env: gymnasium.Env[Any, Any], *, training_steps: int) -> Any:
    """Return the library's untrained model on the CPU.

    :param training_steps: environment steps of the training, at most.
    """
    baseline = BASELINES[task.algorithm]
    chosen = getattr(importlib.import_module(baseline.package), baseline.class_name)
    logger = importlib.import_module("stable_baselines3.common.logger")
    options: dict[str, Any] = {"policy_kwargs": {}}
    if task.policy.hidden != baseline.hidden:
        options["policy_kwargs"]["net_arch"] = list(task.policy.hidden)
    if task.algorithm in _OFF_POLICY:
        options["buffer_size"] = min(_BUFFER, training_steps)
        # Adam as one operation: the same update, about a tenth of the training's time less.
        options["policy_kwargs"]["optimizer_kwargs"] = {"fused": True}
    # The library seeds generators of 32 bits.
    model = chosen("MlpPolicy", env, seed=task.seed % 2**32, device="cpu", **options)
    model.set_logger(logger.Logger(None, []))
    return model


def vector_of(algorithm: str, model: Any) -> Array:
    """Return the numbers of a model's deterministic policy, in the order of kind ``mlp``: (n,) float64."""
    nn = importlib.import_module("torch").nn
    match algorithm:
        case "sb3_dqn":
            modules = [*model.q_net.q_net]
        case "sb3_sac":
            modules = [*model.actor.latent_pi, model.actor.mu]
        case "sb3_ddpg" | "sb3_td3":
            modules = [*model.actor.mu]
        case _:
            modules = [*model.policy.mlp_extractor.policy_net, model.policy.action_net]
    layers = [layer for layer in modules if isinstance(layer, nn.Linear)]
    arrays = [part.detach().cpu().numpy().ravel() for layer in layers for part in (layer.weight, layer.bias)]
    return np.concatenate(arrays).astype(np.float64)
