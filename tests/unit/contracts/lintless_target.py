"""A sandbox target that checks rewards with the lint switched off, as if it had been fooled."""

import builtins

from dressage.contracts import check, execute, reward


def check_reward(channel):
    check.lint_reward = reward.lint_reward = lambda source, card: []
    execute.ALLOWED_BUILTINS |= {"open"}
    assert builtins.open
    check.check_reward(channel)
