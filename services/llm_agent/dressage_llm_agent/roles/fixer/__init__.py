"""Check failures to repaired code."""
