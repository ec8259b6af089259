"""What trains the members of a run inside the learner: the stacked PPO, or Stable-Baselines3."""
