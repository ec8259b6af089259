"""Frames of an episode to scores."""
