"""Environment to a class that summarises trajectories."""
