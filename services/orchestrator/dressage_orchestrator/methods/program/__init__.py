"""Method `program`: programs of a small language, searched from those that a model wrote or from random ones."""

from dressage_orchestrator.methods.program.method import ProgramMethod

METHOD = ProgramMethod()

__all__ = ["METHOD"]
