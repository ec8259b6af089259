"""`dressage.check`: the check of a reward or a code policy that a session makes, in the sandbox of this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path

from dressage.contracts import CheckFailure, CheckReport
from dressage.sdk.arguments import environment_id, own_environments
from dressage.sdk.reward_source import Reward, reward_source


@dataclass(frozen=True)
class CheckResult:
    """The result of checking a reward, a code policy or a feedback class. It is true if the code passed."""

    ok: bool
    problems: tuple[CheckFailure, ...]
    """Each with ``rule``, ``line`` (of `source`; 0: of all), ``message`` and ``seen``."""
    environment: str
    style: str
    """``vectorised``, ``per_step``, ``policy`` or ``feedback``; empty if the source could not be read."""
    terms: Mapping[str, str]
    """Terms of the reward and their meanings."""
    latex: str
    milliseconds_per_step: float
    """Time of one call for 1000 environments."""
    source: str = field(repr=False)
    """What was checked."""
    act_microseconds: float = 0.0
    """Median time of one action of a policy."""
    traceable: bool | None = None
    """Whether a reward can be compiled for a device; None: not examined."""
    obstacles: tuple[CheckFailure, ...] = ()
    """Why it cannot, or was not examined although that was requested."""

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return passed_text(self)
        return "\n".join(map(str, self.problems))

    def _repr_html_(self) -> str:
        if self.ok:
            rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in self.terms.items())
            return f"<b>passed</b> in {escape(self.environment)}<table>{rows}</table>"
        items = "".join(f"<li>{escape(str(problem))}</li>" for problem in self.problems)
        return f"<b>failed</b> in {escape(self.environment)}<ul>{items}</ul>"


def check(
    reward: Reward,
    env: str,
    *,
    allow_unsandboxed: bool = False,
    traceable: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
) -> CheckResult:
    """Check a reward as a session does, without training; or a code policy, or a feedback class.

    :param reward: source text, a path, or a function or class of the contract. A class ``Policy`` is a code policy, a class
        ``Feedback`` a feedback class.
    :param env: environment id, such as ``Hopper-v5``.
    :param allow_unsandboxed: run the code even if this kernel has no sandbox; only for code that you have read.
    :param traceable: also examine whether a reward can be compiled for a device; imports JAX in the sandbox.
    :param data_dir: data folder of this machine; by default ``$DRESSAGE_HOME``, else the platform's folder.
    :returns: the result; what is wrong with the code is in it, never an exception.
    :raises InvalidArgument: for a reward that cannot be read.
    :raises NotFound: for an unknown environment.
    :raises FailedPrecondition: if this kernel has no sandbox and ``allow_unsandboxed`` is not set.
    """
    source, environment = reward_source(reward), environment_id(env)
    with own_environments(data_dir):
        report = check_source(source, environment, allow_unsandboxed=allow_unsandboxed, traceable=traceable)
    return CheckResult(
        ok=report.ok,
        problems=tuple(report.failures),
        environment=environment,
        style=report.style,
        terms=report.terms,
        latex=report.latex,
        milliseconds_per_step=report.milliseconds_per_step,
        source=source,
        act_microseconds=report.act_microseconds,
        traceable=report.traceable,
        obstacles=tuple(report.obstacles),
    )


def passed_text(result: CheckResult | CheckReport) -> str:
    """Return one line about code that passed."""
    times = {
        "policy": f", {result.act_microseconds:.1f} µs for an action",
        "feedback": "",
    }
    usual = f", {result.milliseconds_per_step:.2f} ms for a step of 1000 environments"
    return f"passed ({result.style}{times.get(result.style, usual)})"


def check_source(source: str, environment: str, *, allow_unsandboxed: bool, traceable: bool = False) -> CheckReport:
    """Check a source on the recorded episodes of an environment.

    :param traceable: also examine whether a reward can be compiled for a device.
    :raises NotFound: for an unknown environment.
    :raises FailedPrecondition: if this kernel has no sandbox and ``allow_unsandboxed`` is not set.
    """
    from dressage.contracts import check_feedback_in_sandbox, check_policy_in_sandbox, check_reward_in_sandbox
    from dressage.contracts.syntax import kind_of
    from dressage.envs.cards import load_card
    from dressage.envs.trajectory import load_check_trajectories

    card = load_card(environment)
    episodes = [episode for group in load_check_trajectories(card.id).values() for episode in group]
    with tempfile.TemporaryDirectory(prefix="dressage-check-") as scratch:
        checks: dict[str, Callable[..., CheckReport]] = {
            "reward": partial(check_reward_in_sandbox, traceable=traceable),
            "policy": check_policy_in_sandbox,
            "feedback": check_feedback_in_sandbox,
        }
        return checks[kind_of(source)](
            source, card, episodes, scratch=Path(scratch), allow_unsandboxed=allow_unsandboxed
        )
