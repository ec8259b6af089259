"""Sandbox targets that check code policies and feedback classes on recorded observations; see `dressage.contracts.check`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from dressage.contracts.check import REQUEST_TIMEOUT, CheckReport, dump_stack_after, violations_report
from dressage.contracts.failures import CheckFailure, PolicyError
from dressage.contracts.policy import invoke, load_class, new_episode, summarize
from dressage.contracts.policy_lint import lint_feedback, lint_policy
from dressage.contracts.spaces import Array, Spaces
from dressage.sandbox.pipe import Channel

_MAX_ACTS = 200
"""Actions in one episode, at most."""
_SECONDS = 5.0
"""After this time no further action is tried, so that slow actions within their limit do not fail the check."""


def examine_policy(source: str, spaces: Spaces, episodes: Sequence[Array], *, act_seconds: float) -> CheckReport:
    """Check a policy: lint, load, and act on recorded observations. Call it only inside a sandbox.

    :param episodes: (T+1, D) observations of each episode, at least one.
    :param act_seconds: limit of one action.
    """
    violations = lint_policy(source)
    if violations:
        return violations_report(violations, "policy")
    times: list[float] = []
    try:
        policy = load_class(source, "Policy", owner="policy")
        begin = time.perf_counter()
        for observations in episodes:
            if times and time.perf_counter() - begin > _SECONDS:
                break
            act = new_episode(policy)
            for row in spaces.rows(observations[:_MAX_ACTS]):
                if times and time.perf_counter() - begin > _SECONDS:
                    break
                times.append(_time_action(act, row, spaces))
    except PolicyError as error:
        return CheckReport.of_failures(error.failure, style="policy")
    failures = []
    if max(times) > act_seconds:
        message = f"an action is too slow; it may take {act_seconds:g} s. Compute less in act(), or once in reset()."
        failures.append(CheckFailure("time_budget", 0, message, f"{max(times):.2f} s"))
    return CheckReport(not failures, failures, style="policy", act_microseconds=statistics.median(times) * 1e6)


def _time_action(act: Any, row: Any, spaces: Spaces) -> float:
    begin = time.perf_counter()
    answer = invoke(act, row, action="act()")
    seconds = time.perf_counter() - begin
    spaces.actions([answer])
    return seconds


def examine_feedback(source: str, spaces: Spaces, episodes: Sequence[Array]) -> CheckReport:
    """Check a feedback class: lint, load, and summarise recorded episodes. Call it only inside a sandbox."""
    violations = lint_feedback(source)
    if violations:
        return violations_report(violations, "feedback")
    try:
        feedback = load_class(source, "Feedback", owner="feedback")
        for observations in episodes:
            summarize(feedback, list(spaces.rows(observations)))
    except PolicyError as error:
        return CheckReport.of_failures(error.failure, style="feedback")
    return CheckReport(True, style="feedback")


def check_policy(channel: Channel) -> None:
    """Sandbox target: check the policy of one request and answer with its report."""
    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    spaces, seconds = Spaces.from_dict(request["spaces"]), float(request["act_seconds"])
    report = examine_policy(request["source"], spaces, request["episodes"], act_seconds=seconds)
    channel.send({"report": report.to_dict()})


def check_feedback(channel: Channel) -> None:
    """Sandbox target: check the feedback class of one request and answer with its report."""
    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    report = examine_feedback(request["source"], Spaces.from_dict(request["spaces"]), request["episodes"])
    channel.send({"report": report.to_dict()})
