"""Parameters and their rollouts to revised parameters."""
