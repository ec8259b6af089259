"""Method `reward`: a vectorised reward and hyperparameters, trained with PPO over seeds and configs."""

from dressage_orchestrator.methods.reward.method import RewardMethod

METHOD = RewardMethod()

__all__ = ["METHOD"]
