"""PPO for many members at once: pure numerics, without files, processes or network.

`StackedPPO` (stacked.py) puts together collection (collect.py, numpy) and the compiled update (update.py, JAX).
Importing this package is cheap; the modules that need JAX import it.
"""
