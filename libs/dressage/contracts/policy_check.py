"""Sandbox targets that run code policies and feedback classes on recorded observations for their check.

What they send is no verdict; see `dressage.contracts.check`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressage.contracts.check import (
    REQUEST_TIMEOUT,
    CheckReport,
    Reply,
    assess_feedback,
    assess_policy,
    dump_stack_after,
)
from dressage.contracts.failures import PolicyError
from dressage.contracts.policy import invoke, load_class, new_episode, summarize
from dressage.contracts.spaces import Array, Spaces
from dressage.sandbox.call import ENTERS_CODE
from dressage.sandbox.pipe import Channel

_MAX_ACTS = 200
"""Actions in one episode, at most."""
_SECONDS = 5.0
"""After this time no further action is tried, so that slow actions within their limit do not fail the check."""


def policy_evidence(source: str, spaces: Spaces, episodes: Sequence[Array]) -> dict[str, Any]:
    """Return the actions of a policy on recorded observations. Call it only inside a sandbox.

    :returns: ``failure``, or ``actions`` of each episode and ``seconds`` of each action.
    """
    times: list[float] = []
    actions: list[Array] = []
    try:
        policy = load_class(source, "Policy", owner="policy")
        begin = time.perf_counter()
        for observations in episodes:
            if times and time.perf_counter() - begin > _SECONDS:
                break
            act, chosen = new_episode(policy), []
            for row in spaces.rows(observations[:_MAX_ACTS]):
                if times and time.perf_counter() - begin > _SECONDS:
                    break
                action, seconds = _time_action(act, row, spaces)
                times.append(seconds)
                chosen.append(action)
            if chosen:
                actions.append(np.concatenate(chosen))
    except PolicyError as error:
        return {"failure": error.failure.to_dict()}
    return {"actions": actions, "seconds": np.array(times)}


def _time_action(act: Any, row: Any, spaces: Spaces) -> tuple[Array, float]:
    begin = time.perf_counter()
    answer = invoke(act, row, action="act()")
    seconds = time.perf_counter() - begin
    return spaces.actions([answer]), seconds


def feedback_evidence(source: str, spaces: Spaces, episodes: Sequence[Array]) -> dict[str, Any]:
    """Return the texts of a feedback class on recorded episodes. Call it only inside a sandbox."""
    try:
        feedback = load_class(source, "Feedback", owner="feedback")
        return {"texts": [summarize(feedback, list(spaces.rows(observations))) for observations in episodes]}
    except PolicyError as error:
        return {"failure": error.failure.to_dict()}


def examine_policy(source: str, spaces: Spaces, episodes: Sequence[Array], *, act_seconds: float) -> CheckReport:
    """Check a policy in this process: lint, load, and act on recorded observations. Call it only inside a sandbox.

    :param episodes: (T+1, D) observations of each episode, at least one.
    :param act_seconds: limit of one action.
    """

    def evidence() -> Reply:
        return policy_evidence(source, spaces, episodes), math.inf

    return assess_policy(source, spaces, episodes, evidence, act_seconds=act_seconds)


def examine_feedback(source: str, spaces: Spaces, episodes: Sequence[Array]) -> CheckReport:
    """Check a feedback class in this process: lint, load, and summarise recorded episodes. Call it only inside a sandbox."""
    return assess_feedback(source, lambda: (feedback_evidence(source, spaces, episodes), math.inf))


def check_policy(channel: Channel) -> None:
    """Sandbox target: run the policy of one request."""
    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    spaces = Spaces.from_dict(request["spaces"])
    channel.send(ENTERS_CODE)
    channel.send(policy_evidence(request["source"], spaces, request["episodes"]))


def check_feedback(channel: Channel) -> None:
    """Sandbox target: run the feedback class of one request."""
    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    spaces = Spaces.from_dict(request["spaces"])
    channel.send(ENTERS_CODE)
    channel.send(feedback_evidence(request["source"], spaces, request["episodes"]))
