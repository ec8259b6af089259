"""Method `parameters`: the parameters of a small policy, searched by a language model or by a search without one."""

from dressage_orchestrator.methods.parameters.method import ParameterMethod

METHOD = ParameterMethod()

__all__ = ["METHOD"]
