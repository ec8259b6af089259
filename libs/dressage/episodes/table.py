"""The compiled rules of environments."""

from __future__ import annotations

import functools
from dataclasses import replace

from dressage.envs.rules import Rules, rules_of
from dressage.episodes.compiling import device


@functools.cache
def compiled_rules(env_id: str) -> Rules:
    """Return the rules of an environment that has some, their functions compiled."""
    rules = rules_of(env_id)
    assert rules is not None
    start, step, observe, number = map(_device, (rules.start, rules.step, rules.observe, rules.number))
    return replace(rules, start=start, step=step, observe=observe, number=number)


_device = functools.cache(device)
"""Environments that share a function share its machine code."""
