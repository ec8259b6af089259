"""Trainers as Kubernetes Jobs: pools, the Job's manifest, what its status means, and the launcher over them.

One Job for each run. The Job replaces a pod that was evicted or failed, so training goes on while no orchestrator is
there; the orchestrator watches all its Jobs by one watch and one list now and then.
"""
