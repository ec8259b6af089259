"""Training settings that the service and the trainer share: hyperparameters with their rules, and presets by environment.

Importing this package loads no simulator and no learning framework.
"""
