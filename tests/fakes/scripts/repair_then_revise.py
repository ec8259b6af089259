"""A session on InvertedPendulum-v5 with a repair and a revision.

The first reward has the wrong shape and fails its check. The repaired one is valid but rewards a fallen pole, so that its
policy scores too low. The reviser reads the history and rewards an upright pole instead; the session passes.

Use the intent "balance the pole" in InvertedPendulum-v5 and the model ``openai/scripted``; a few 10 000 steps for each
member are enough.
"""

from openai_server import Answer, Call

WRONG_SHAPE = """\
LATEX = r"\\theta"
TERMS = {"angle": "angle of the pole, of all environments together"}


def reward(state, action, next_state, memory, np):
    return {"angle": np.abs(next_state.pole_angle).sum()}
"""

# Valid in form. An episode that ends early is optimal: each upright step costs 1.
PAYS_FOR_FALLING = """\
LATEX = r"10\\,|\\theta| - 1"
TERMS = {"angle": "angle of the pole", "alive": "cost of every step"}


def reward(state, action, next_state, memory, np):
    return {
        "angle": 10.0 * np.abs(next_state.pole_angle),
        "alive": -1.0 * np.ones_like(next_state.pole_angle),
    }
"""

PAYS_FOR_BALANCE = """\
LATEX = r"1 - (\\theta / 0.2)^2 - 0.05\\,x^2"
TERMS = {"alive": "1 for every step", "angle": "cost of the squared angle", "place": "cost of the squared distance"}


def reward(state, action, next_state, memory, np):
    return {
        "alive": np.ones_like(next_state.pole_angle),
        "angle": -np.square(next_state.pole_angle / 0.2),
        "place": -0.05 * np.square(next_state.x_position),
    }
"""

JUDGE = """\
def judge(trajectory, np):
    steps = len(trajectory.action)
    seconds = steps * 0.04
    lasted = min(seconds / 4.0, 1.0)
    if trajectory.terminated:
        lasted = min(steps / 1000.0, 1.0)
    angle = float(np.abs(trajectory.pole_angle).mean())
    upright = min(max((0.2 - angle) / 0.15, 0.0), 1.0)
    return {
        "score": lasted * upright,
        "criteria": {"lasted": lasted, "upright": upright},
        "evidence": {"seconds": seconds, "mean_angle_rad": angle},
    }
"""


def _block(source: str) -> str:
    return f"```python\n{source}```\n"


SCRIPT = [
    # The review finds nothing: what is wrong shows in the check and in the training.
    Answer(
        '```json\n{"approved": true, "summary": "It computes its terms.", "findings": []}\n```\n',
        when="You are the code reviewer",
        repeat=True,
    ),
    Answer(
        f"## Reasoning\nThe angle measures how upright the pole is.\n\n{_block(WRONG_SHAPE)}",
        when="You are the reward author",
    ),
    Answer(
        "## Reasoning\nHow long the pole stays up, and how upright it is.\n\n"
        f"## Null controls\nrandom, untrained, motionless\n\n{_block(JUDGE)}",
        when="You are the judge author",
    ),
    Answer(
        f"## Reasoning\nOne value for each environment, and a cost of time.\n\n{_block(PAYS_FOR_FALLING)}",
        when="You are the reward author",
    ),
    Answer(
        calls=(Call("get_scores"), Call("get_iteration", {"number": 1})),
        when="You are the reviser",
    ),
    Answer(
        "## Diagnosis\nThe pole falls at once: each step costs 1, so an early end pays.\n\n"
        "## Lesson\nWhere a fall ends the episode, a good step must pay.\n\n"
        "## Based on\n1\n\n"
        "## Planned change\nPay 1 for every step, and take the angle as a cost.\n\n"
        f"{_block(PAYS_FOR_BALANCE)}",
        when="You are the reviser",
    ),
]
