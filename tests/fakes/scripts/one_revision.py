"""A session on InvertedPendulum-v5 with one revision: the first reward charges nothing for leaning, the second does.

As `repair_then_revise`, without the repair: for sessions whose trainings are what is looked at.
"""

from openai_server import Answer, Call

PAYS_FOR_LITTLE = """\
LATEX = r"1 - 0.1\\,x^2"
TERMS = {"alive": "1 for every step", "place": "cost of the squared distance"}


def reward(state, action, next_state, memory, np):
    return {"alive": np.ones_like(next_state.pole_angle), "place": -0.1 * np.square(next_state.x_position)}
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

# No policy is upright all the time: the score stays below 1, so that the session continues to its last iteration.
JUDGE = """\
def judge(trajectory, np):
    steps = len(trajectory.action)
    lasted = min(steps / 1000.0, 1.0)
    angle = float(np.abs(trajectory.pole_angle).mean())
    upright = min(max((0.2 - angle) / 0.21, 0.0), 0.95)
    return {
        "score": lasted * upright,
        "criteria": {"lasted": lasted, "upright": upright},
        "evidence": {"steps": float(steps), "mean_angle_rad": angle},
    }
"""


def _block(source: str) -> str:
    return f"```python\n{source}```\n"


SCRIPT = [
    Answer(
        '```json\n{"approved": true, "summary": "It does what it describes.", "findings": []}\n```\n',
        when="You are the code reviewer",
        repeat=True,
    ),
    Answer(f"## Reasoning\nIt stays up.\n\n{_block(PAYS_FOR_LITTLE)}", when="You are the reward author"),
    Answer(
        "## Reasoning\nHow long the pole stays up, and how upright it is.\n\n"
        f"## Null controls\nrandom, untrained, motionless\n\n{_block(JUDGE)}",
        when="You are the judge author",
    ),
    Answer(calls=(Call("get_scores"), Call("get_iteration", {"number": 1})), when="You are the reviser"),
    Answer(
        "## Diagnosis\nThe pole leans.\n\n## Lesson\nThe angle has to cost something.\n\n## Based on\n1\n\n"
        f"## Planned change\nTake the angle as a cost.\n\n{_block(PAYS_FOR_BALANCE)}",
        when="You are the reviser",
    ),
]
