"""Keep the pole upright and the cart in the middle of the rail, for Isaac Lab's cart-pole (pack isaaclab).

Try:  dressage train examples/rewards/isaac_upright.py --env Isaac-Cartpole-Direct
"""

LATEX = r"\cos\theta - 0.1x^2 - 0.01a^2"
TERMS = {
    "upright": "cosine of the pole's angle",
    "middle": "squared distance of the cart from the middle, weighted by 0.1",
    "effort": "squared action, weighted by 0.01",
}


def reward(state, action, next_state, memory, np):
    """All arrays have a leading axis of N environments; the reward is the sum of the terms."""
    cart, pole = next_state.joint_positions[:, 0], next_state.joint_positions[:, 1]
    return {"upright": np.cos(pole), "middle": -0.1 * cart**2, "effort": -0.01 * np.square(action).sum(-1)}
