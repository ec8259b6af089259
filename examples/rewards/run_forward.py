"""Run forward fast without wasting effort, for HalfCheetah-v5.

Try:  dressage check examples/rewards/run_forward.py --env HalfCheetah-v5
      dressage train examples/rewards/run_forward.py --env HalfCheetah-v5
"""

LATEX = r"v_x - 0.1\lVert a\rVert^2"
TERMS = {
    "speed": "forward velocity of the torso, m/s",
    "effort": "squared action, weighted by 0.1",
}


def reward(state, action, next_state, memory, np):
    """All arrays have a leading axis of N environments; the reward is the sum of the terms."""
    return {
        "speed": next_state.x_velocity,
        "effort": -0.1 * np.square(action).sum(-1),
    }
