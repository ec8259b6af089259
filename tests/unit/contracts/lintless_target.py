"""Sandbox targets: checks rewards with the lint switched off, as if it had been fooled; opens a file."""

import builtins

from dressage.contracts import evidence, execute, reward


def check_reward(channel):
    reward.lint_reward = lambda source, card: []
    execute.ALLOWED_BUILTINS |= {"open"}
    assert builtins.open
    evidence.check_reward(channel)


def read(channel):
    try:
        open(channel.recv()["path"]).close()
    except OSError as error:
        channel.send({"error": type(error).__name__})
    else:
        channel.send({"error": ""})
