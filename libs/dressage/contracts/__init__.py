"""Contracts for generated code: what rewards, judges and policies look like, their checks, and how they are run.

The names here are those for trusted callers. What runs generated code (`reward`, `judge`, `policy`, `probe`) is imported
from its own module, and only inside a sandbox.

Names are imported when they are first used: a sandboxed process imports a few modules only, so that it starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dressage.contracts.check import CheckReport as CheckReport
    from dressage.contracts.failures import CheckFailure as CheckFailure
    from dressage.contracts.failures import GeneratedCodeError as GeneratedCodeError
    from dressage.contracts.failures import JudgeError as JudgeError
    from dressage.contracts.failures import PolicyError as PolicyError
    from dressage.contracts.failures import RewardError as RewardError
    from dressage.contracts.failures import Violation as Violation
    from dressage.contracts.host import CHECK_LIMITS as CHECK_LIMITS
    from dressage.contracts.host import check_feedback_in_sandbox as check_feedback_in_sandbox
    from dressage.contracts.host import check_judge_in_sandbox as check_judge_in_sandbox
    from dressage.contracts.host import check_policy_in_sandbox as check_policy_in_sandbox
    from dressage.contracts.host import check_reward_in_sandbox as check_reward_in_sandbox
    from dressage.contracts.host import run_judge_in_sandbox as run_judge_in_sandbox
    from dressage.contracts.host import score_in_sandbox as score_in_sandbox
    from dressage.contracts.judge import JudgeResult as JudgeResult
    from dressage.contracts.policy_lint import lint_feedback as lint_feedback
    from dressage.contracts.policy_lint import lint_policy as lint_policy
    from dressage.contracts.source import lint_judge as lint_judge
    from dressage.contracts.source import lint_reward as lint_reward

_MODULES = {
    "CheckReport": "dressage.contracts.check",
    "CheckFailure": "dressage.contracts.failures",
    "GeneratedCodeError": "dressage.contracts.failures",
    "JudgeError": "dressage.contracts.failures",
    "PolicyError": "dressage.contracts.failures",
    "RewardError": "dressage.contracts.failures",
    "Violation": "dressage.contracts.failures",
    "CHECK_LIMITS": "dressage.contracts.host",
    "check_feedback_in_sandbox": "dressage.contracts.host",
    "check_judge_in_sandbox": "dressage.contracts.host",
    "check_policy_in_sandbox": "dressage.contracts.host",
    "check_reward_in_sandbox": "dressage.contracts.host",
    "run_judge_in_sandbox": "dressage.contracts.host",
    "score_in_sandbox": "dressage.contracts.host",
    "JudgeResult": "dressage.contracts.judge",
    "lint_feedback": "dressage.contracts.policy_lint",
    "lint_policy": "dressage.contracts.policy_lint",
    "lint_judge": "dressage.contracts.source",
    "lint_reward": "dressage.contracts.source",
}


if not TYPE_CHECKING:  # else a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


__all__ = sorted(_MODULES)
