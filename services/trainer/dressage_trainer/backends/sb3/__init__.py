"""The second backend: Stable-Baselines3's PPO and SAC on the batched environment, behind the learner's protocol.

It is the reference for the stacked PPO, and the way to another algorithm. Its package is the extra ``dressage[sb3]``;
importing this package is cheap, its modules import torch.
"""
