"""The second backend: Stable-Baselines3's PPO and SAC on the batched environment, behind the protocol of `backends.group`.

It is the reference for the stacked PPO, and provides SAC. It needs the extra ``dressage[sb3]``; importing this package is
cheap, its modules import torch.
"""
