"""The judge: checks of generated rewards and judges, and verdicts on recorded rollouts."""
