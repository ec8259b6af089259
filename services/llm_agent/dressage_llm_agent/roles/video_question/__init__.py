"""Frames of an episode and a question to an answer."""
