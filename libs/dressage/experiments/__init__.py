"""Experiments: a matrix of environments, methods and runs from a YAML file, its results, and their statistics."""
