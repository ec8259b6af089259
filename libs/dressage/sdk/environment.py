"""`dressage.make_env`: a stock Gymnasium environment whose reward is a generated one.

The reward's code is not trusted: it runs in a sandboxed process of its own, as everywhere else. A step sends the fields that
the code reads and waits for the terms. The simulation is stock Gymnasium's.
"""

from __future__ import annotations

import ast
import math
import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dressage.contracts import RewardError
from dressage.contracts.failures import reported_error
from dressage.contracts.hidden import HIDDEN
from dressage.contracts.host import failure_of
from dressage.contracts.syntax import MAX_TERMS, reward_style
from dressage.envs import custom, small
from dressage.envs.cards import EnvironmentCard
from dressage.envs.fields import trackers_of
from dressage.envs.options import EnvOptions
from dressage.envs.state import Array
from dressage.envs.stock import make_by_id, make_stock, source_of
from dressage.errors import DeadlineExceeded, InvalidArgument
from dressage.parsing import syntax_tree
from dressage.sandbox import ChannelClosed, Limits, ProtocolError, SandboxFailure, SandboxProcess
from dressage.sandbox.output import excerpt
from dressage.sandbox.pipe import MALFORMED
from dressage.sandbox.scratch import remove_scratch
from dressage.sdk.argument_names import python_names
from dressage.sdk.arguments import environment_id, own_environments
from dressage.sdk.reward_source import Reward, reward_source

_LIMITS = Limits(memory_bytes=1 << 30, file_bytes=1 << 20, open_files=64, processes=64)
_START_SECONDS = 60.0
_STEP_SECONDS = 10.0
"""A step takes well under a millisecond; code that takes this long does not end."""


def make_env(
    env: str,
    reward: Reward | None = None,
    *,
    env_options: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
    allow_unsandboxed: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
) -> gymnasium.Env[Any, Any]:
    """Make a Gymnasium environment with a given reward, for Stable-Baselines3, CleanRL and others.

    Observations, episode ends and ``render`` are those of stock Gymnasium. ``info`` has in addition ``stock_reward``, the
    environment's own reward, and ``reward_terms``, the terms whose sum the reward is. Close the environment to end the process
    that runs the reward.

    :param env: environment id, such as ``Hopper-v5``.
    :param reward: source text, a path, or a function or class of the contract; by default the environment's own reward.
    :param env_options: ``max_episode_steps``, ``terminate_when_unhealthy`` or ``reset_noise_scale``.
    :param render_mode: as for ``gymnasium.make``; not for own models.
    :param allow_unsandboxed: run the reward even if this kernel has no sandbox; only for code that you have read.
    :param data_dir: data folder of this machine; by default ``$DRESSAGE_HOME``, else the platform's folder.
    :raises NotFound: for an unknown environment.
    :raises InvalidArgument: for a wrong option, or a reward that cannot be read.
    :raises RewardError: for a reward that breaks its contract; also from ``step``, where it does so in a later state.
    :raises FailedPrecondition: if this kernel has no sandbox and ``allow_unsandboxed`` is not set.
    """
    with python_names(), own_environments(data_dir):
        options = EnvOptions.from_dict(env_options or {})
        card = options.check(environment_id(env))
        stock = _stock(card, options, render_mode)
        if reward is None:
            return stock
        try:
            process = _RewardProcess(reward_source(reward), card, allow_unsandboxed=allow_unsandboxed)
        except BaseException:
            stock.close()
            raise
    return RewardEnv(stock, card, process)


def _stock(card: EnvironmentCard, options: EnvOptions, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    if render_mode is None:
        env: Any = make_stock(card, options)
        return _ModelEnv(env, card) if card.id.startswith(custom.MODEL) else env
    if custom.is_custom(card.id) or card.id in small.OWN:
        raise InvalidArgument(field="render_mode", value=render_mode, expected=f"None for {card.id}")
    drawn: gymnasium.Env[Any, Any] = make_by_id(card.id, **options.overrides(), render_mode=render_mode)
    return drawn


class _ModelEnv(gymnasium.Env[Any, Any]):
    """A user's model as an environment of Gymnasium."""

    def __init__(self, model: Any, card: EnvironmentCard) -> None:
        self._model = model
        self.model, self.data = model.model, model.data
        self.observation_space = spaces.Box(-np.inf, np.inf, (card.observation_size,), np.float64)
        low, high = ([getattr(part, side) for part in card.action] for side in ("low", "high"))
        self.action_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        result: tuple[Any, dict[str, Any]] = self._model.reset(seed=seed)
        return result

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply an action for one time step."""
        result: tuple[Any, float, bool, bool, dict[str, Any]] = self._model.step(action)
        return result


class RewardEnv(gymnasium.Env[Any, Any]):
    """A stock environment whose reward a sandboxed process computes; make one with `make_env`."""

    def __init__(self, stock: gymnasium.Env[Any, Any], card: EnvironmentCard, process: _RewardProcess) -> None:
        self.stock = stock
        """The environment with its own reward."""
        self.observation_space, self.action_space = stock.observation_space, stock.action_space
        self.metadata, self.render_mode = stock.metadata, stock.render_mode
        self._card, self._process = card, process
        self._source = source_of(card, stock)
        self._trackers = trackers_of(self._source.bound)
        fields = {entry.field.name: entry.function for entry in self._source.bound}
        self._functions = [fields[name] for name in process.fields]
        self._discrete = card.action_kind == "discrete"
        self._low = np.array([part.low for part in card.action])
        self._high = np.array([part.high for part in card.action])
        self._row: dict[str, Array] = {}
        self._steps = 0

    @property
    def terms(self) -> Mapping[str, str]:
        """Terms of the reward and their meanings."""
        return self._process.terms

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the reward's memory starts anew."""
        super().reset(seed=seed)
        observation, info = self.stock.reset(seed=seed, options=options)
        self._steps, self._row = 0, {}
        self._process.start(self._state(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply an action for one time step.

        :raises RewardError: if the reward fails in this state.
        """
        observation, stock_reward, terminated, truncated, info = self.stock.step(action)
        self._steps += 1
        total, terms = self._process.step(self._reward_action(action), self._state(observation))
        return (
            observation,
            total,
            bool(terminated),
            bool(truncated),
            {**info, "stock_reward": float(stock_reward), "reward_terms": terms},
        )

    def render(self) -> Any:
        """As the stock environment renders."""
        return self.stock.render()

    def close(self) -> None:
        """End the environment and the process that runs the reward."""
        self._process.close()
        self.stock.close()

    def _reward_action(self, action: Any) -> Array:
        """The action as a reward is given it: one row, within the bounds."""
        if self._discrete:
            return np.asarray([int(action)])
        return np.clip(np.asarray(action, np.float64), self._low, self._high)[None]

    def _state(self, observation: Any) -> Array:
        """The fields that the reward reads, as one vector."""
        flat = self._source.flat(observation)
        row = {name: array[None] for name, array in self._source.read(flat, self._steps).items()}
        for name, tracker in self._trackers.items():
            row[name] = tracker.step(self._row, row) if self._row else tracker.start(row)
        self._row = row
        if not self._functions:
            return np.zeros(0)
        return np.concatenate([np.ravel(function(row)) for function in self._functions]).astype(np.float64)


class _RewardProcess:
    """The sandboxed process of one environment; the other side is `reward_process`."""

    def __init__(self, source: str, card: EnvironmentCard, *, allow_unsandboxed: bool) -> None:
        self.fields = _fields_read(source, card)
        folder = Path(tempfile.mkdtemp(prefix="dressage-env-"))
        try:
            self._process = SandboxProcess.start(
                "dressage.sdk.reward_process:serve",
                limits=_LIMITS,
                scratch=folder,
                hidden=HIDDEN,
                allow_unsandboxed=allow_unsandboxed,
            )
        except BaseException:
            remove_scratch(folder)
            raise
        self.close = weakref.finalize(self, _end, self._process, folder)
        try:
            request = {"source": source, "card": card.to_dict(), "fields": list(self.fields)}
            self._process.channel.send(request, timeout=_START_SECONDS)
            first = _terms(self._receive(_START_SECONDS))
        except BaseException:
            self.close()
            raise
        self.terms = first

    def start(self, state: Array) -> None:
        """Start an episode from a state."""
        self._send({"action": None, "state": state})

    def step(self, action: Array, state: Array) -> tuple[float, dict[str, float]]:
        """Return the reward of a step and its terms.

        :raises RewardError: if the reward failed.
        """
        self._send({"action": action, "state": state})
        answer = self._receive(_STEP_SECONDS)
        try:
            values = [float(value) for value in answer["values"]]
            total, terms = float(answer["total"]), dict(zip(self.terms, values, strict=True))
        except MALFORMED as error:
            raise RewardError("sandbox", "the sandbox sent a malformed answer.", seen=str(error)) from error
        if not all(map(math.isfinite, (total, *values))):
            raise RewardError("finite", "a term or the reward is not finite.", seen=str({**terms, "reward": total}))
        return total, terms

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self.close.alive:
            raise RewardError("sandbox", "the environment is closed; make another one.")
        try:
            self._process.channel.send(message, timeout=_STEP_SECONDS)
        except (ChannelClosed, DeadlineExceeded) as error:
            raise self._exit_error() from error

    def _receive(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self._process.channel.recv(timeout=seconds)
        except DeadlineExceeded as error:
            self.close()
            message = "the code did not end in time; remove endless or long loops."
            raise RewardError("time_budget", message, seen=f"{seconds:g} s") from error
        except (ChannelClosed, ProtocolError) as error:
            raise self._exit_error() from error
        if "failure" in answer:
            raise reported_error(answer, RewardError)
        return answer

    def _exit_error(self) -> RewardError:
        """The error for a process that has ended."""
        ended = self._process.wait(_STEP_SECONDS) or self._process.kill()
        self.close()
        failure = failure_of(SandboxFailure(ended.kind, ended.reason, ended.stderr_tail))
        return RewardError(failure.rule, failure.message, line=failure.line, seen=failure.seen)


def _terms(answer: Mapping[str, Any]) -> dict[str, str]:
    terms = answer.get("terms")
    if not isinstance(terms, dict) or not 1 <= len(terms) <= MAX_TERMS:
        raise RewardError("sandbox", "the sandbox sent no terms.")
    return {excerpt(name): excerpt(meaning) for name, meaning in terms.items()}


def _end(process: SandboxProcess, folder: Path) -> None:
    process.close()
    remove_scratch(folder)


def _fields_read(source: str, card: EnvironmentCard) -> Sequence[str]:
    """The fields that a reward may read: a per-step one is given all, a vectorised one names them."""
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()  # the other side reports what is wrong
    if reward_style(tree) == "per_step":
        return card.field_names
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return [name for name in card.field_names if name in named]
