"""SAC for many members at once: pure numerics, without files, processes or network.

`sac.py` holds the algorithm, from step to log. It shares environments, normalisation, faults and streams with `ppo`.
"""
