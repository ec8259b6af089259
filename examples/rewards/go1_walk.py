"""Walk forward at 1 m/s, upright and gently, for mjlab's Unitree Go1 (pack mjlab).

Try:  dressage train examples/rewards/go1_walk.py --env Mjlab-Velocity-Flat-Unitree-Go1
"""

LATEX = r"e^{-4(v_x-1)^2} - \frac{1}{2}g_z - 0.01\lVert a\rVert^2"
TERMS = {
    "speed": "1 at a forward velocity of 1 m/s",
    "upright": "0.5 where the base is level",
    "effort": "squared action, weighted by 0.01",
}


def reward(state, action, next_state, memory, np):
    """All arrays have a leading axis of N environments; the reward is the sum of the terms."""
    return {
        "speed": np.exp(-4.0 * (next_state.root_velocity[:, 0] - 1.0) ** 2),
        "upright": -0.5 * next_state.root_gravity[:, 2],
        "effort": -0.01 * np.square(action).sum(-1),
    }
