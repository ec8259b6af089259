"""Contracts for generated code: what rewards and judges look like, their checks, and how they are run.

The names here are those for trusted callers. What runs generated code (`reward`, `judge`, `probe`) is imported from its
own module, and only inside a sandbox.
"""

from dressage.contracts.check import CheckReport
from dressage.contracts.failures import CheckFailure, GeneratedCodeError, JudgeError, RewardError, Violation
from dressage.contracts.host import (
    CHECK_LIMITS,
    check_judge_in_sandbox,
    check_reward_in_sandbox,
    run_judge_in_sandbox,
    score_in_sandbox,
)
from dressage.contracts.judge import JudgeResult
from dressage.contracts.source import lint_judge, lint_reward

__all__ = [
    "CHECK_LIMITS",
    "CheckFailure",
    "CheckReport",
    "GeneratedCodeError",
    "JudgeError",
    "JudgeResult",
    "RewardError",
    "Violation",
    "check_judge_in_sandbox",
    "check_reward_in_sandbox",
    "lint_judge",
    "lint_reward",
    "run_judge_in_sandbox",
    "score_in_sandbox",
]
