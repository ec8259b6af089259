"""The same aim in the per-step form: one environment at a time, as a class with `compute`.

Slower than the vectorised form, but often the first that comes to mind.
Try:  dressage train examples/rewards/per_step_forward.py --env HalfCheetah-v5 --steps 300k
"""

import numpy as np


class ForwardWithSteadyHands(RewardFunction):  # noqa: F821  (the name is given by the adapter)
    """Forward speed, less a price on effort."""

    @property
    def latex(self):
        return r"2 v_x - 0.05\lVert a\rVert^2"

    @property
    def terms(self):
        return {
            "speed": "forward velocity of the torso, m/s, weighted by 2",
            "effort": "squared action, weighted by 0.05",
        }

    def compute(self, obs, action, next_obs, info):
        """One step: the reward and its terms."""
        terms = {
            "speed": 2.0 * float(info["x_velocity"]),
            "effort": -0.05 * float(np.sum(np.square(action))),
        }
        return sum(terms.values()), terms
