"""PPO for many members at once: pure numerics, without files, processes or network.

`ppo.py` holds the algorithm, from rollout to log. Importing this package is cheap; the modules that need JAX import it.
"""
