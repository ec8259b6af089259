"""Judges whether a HalfCheetah runs forward: fast, without stops, to the end, and on its feet.

Try:  dressage run "run forward fast" --env HalfCheetah-v5 --judge examples/judges/runs_forward.py
"""

WANTED_SPEED = 4.0  # m/s


def judge(trajectory, np):
    """Scores one recorded episode; arrays have a leading time axis."""
    speed = trajectory.x_velocity[1:]
    settled = speed[len(speed) // 5 :]  # the first fifth is for getting up to speed
    mean_speed = float(np.mean(settled))
    steady = float(np.mean(settled > 0.5 * WANTED_SPEED))
    upright = float(np.mean(np.cos(trajectory.pitch) > 0.0))
    criteria = {
        "speed": float(np.clip(mean_speed / WANTED_SPEED, 0.0, 1.0)),
        "steady": steady,
        "upright": upright,
    }
    # A product: a fast slide on the back is no running, and neither is a graceful standstill.
    score = criteria["speed"] * (0.5 + 0.25 * steady + 0.25 * upright)
    return {
        "score": float(np.clip(score, 0.0, 1.0)),
        "criteria": criteria,
        "evidence": {"mean_speed": mean_speed, "share_above_half_speed": steady, "share_upright": upright},
    }
