"""Compiled representation of programs: flat trees, bytecode, sampling and mutation. Independent of any world."""
