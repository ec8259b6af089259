"""Budgeted searches for the numbers of a small policy: algorithms, scoring, and the sandboxed process that runs them."""
