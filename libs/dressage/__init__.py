"""Dressage: describe a behaviour in words, get a trained policy.

    import dressage

    result = dressage.run("hop forward", env="Hopper-v5")
    print(result.score, result.video)
    action, _ = result.policy.predict(observation)

`run`, `train`, `check`, `evaluate`, `load`, `make_env` and `result` work in this process by default and on a server with
``address=``. Names are imported when they are first used, so that ``import dressage`` takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dressage import errors as errors
    from dressage.client import AsyncClient as AsyncClient
    from dressage.client import Client as Client
    from dressage.contracts import RewardError as RewardError
    from dressage.policies import Policy as Policy
    from dressage.sdk.checking import CheckResult as CheckResult
    from dressage.sdk.checking import check as check
    from dressage.sdk.code_policy import SandboxedPolicy as SandboxedPolicy
    from dressage.sdk.environment import make_env as make_env
    from dressage.sdk.evaluation import Evaluation as Evaluation
    from dressage.sdk.evaluation import evaluate as evaluate
    from dressage.sdk.policy import load as load
    from dressage.sdk.results import Result as Result
    from dressage.sdk.results import SessionFailed as SessionFailed
    from dressage.sdk.running import result as result
    from dressage.sdk.running import run as run
    from dressage.sdk.running import train as train

    __version__: str

# Where each name is; a test compares it with the imports above.
_MODULES = {
    "AsyncClient": "dressage.client",
    "CheckResult": "dressage.sdk.checking",
    "Client": "dressage.client",
    "Evaluation": "dressage.sdk.evaluation",
    "Policy": "dressage.policies",
    "Result": "dressage.sdk.results",
    "RewardError": "dressage.contracts",
    "SandboxedPolicy": "dressage.sdk.code_policy",
    "SessionFailed": "dressage.sdk.results",
    "check": "dressage.sdk.checking",
    "evaluate": "dressage.sdk.evaluation",
    "load": "dressage.sdk.policy",
    "make_env": "dressage.sdk.environment",
    "result": "dressage.sdk.running",
    "run": "dressage.sdk.running",
    "train": "dressage.sdk.running",
}
__all__ = sorted([*_MODULES, "__version__", "errors"])


if not TYPE_CHECKING:  # else a type checker would accept every name

    def __getattr__(name: str) -> Any:
        value: Any
        if name in _MODULES:
            value = getattr(import_module(_MODULES[name]), name)
        elif name == "errors":
            value = import_module("dressage.errors")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("dressage")
        else:
            raise AttributeError(f"module 'dressage' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
