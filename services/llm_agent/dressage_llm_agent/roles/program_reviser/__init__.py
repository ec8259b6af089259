"""Evaluated programs to new programs."""
