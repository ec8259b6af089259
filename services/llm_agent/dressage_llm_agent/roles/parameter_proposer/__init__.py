"""Evaluated parameters to new parameters."""
