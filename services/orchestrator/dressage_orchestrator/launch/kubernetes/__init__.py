"""Trainers as Kubernetes Jobs: pools, the Job's manifest, the interpretation of its status, and the launcher.

Each run is one Job. The Job replaces evicted and failed pods, so training continues while no orchestrator runs. The
orchestrator observes all its Jobs with one watch and a periodic list.
"""
