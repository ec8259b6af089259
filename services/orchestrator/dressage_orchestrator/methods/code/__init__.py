"""Method `code`: a language model writes policies as Python classes, in rounds of candidates."""

from dressage_orchestrator.methods.code.method import CodeMethod

METHOD = CodeMethod()

__all__ = ["METHOD"]
