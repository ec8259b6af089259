"""Minigrid: three tasks, their initial states and their world for the compiled interpreter."""
