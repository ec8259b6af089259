"""A session on InvertedPendulum-v5 with five iterations and a vision model.

The intent requires the cart in the middle. The judge's code omits this: it measures how long the pole stays up, and how upright
it is. The iterations:

1. A reward for falling. Code and video agree on a low score.
2. A reward for balancing at the side. The code's score is high, the video's is low; the synthesiser measures the position of
   the cart, and the video decides.
3. A reward that ranks earlier rollouts in reverse order and fails its pre-screening; the repaired one balances a little nearer
   to the middle.
4. A reward based on the third one: nearer still, but not in the middle.
5. A reward based on the second one with the right position: it passes, also on fresh seeds.

Use the intent "balance the pole with the cart in the middle" and the model ``openai/scripted-vision``; 24 000 steps are enough.
The number of judged episodes varies, so that votes depend on the iteration: the reviser's last answer begins the next one.
"""

import json
from collections.abc import Callable

from openai_server import Answer, Call, Request

FALLING = """\
LATEX = r"10\\,|\\theta| - 1"
TERMS = {"angle": "angle of the pole", "alive": "cost of every step"}


def reward(state, action, next_state, memory, np):
    return {
        "angle": 10.0 * np.abs(next_state.pole_angle),
        "alive": -1.0 * np.ones_like(next_state.pole_angle),
    }
"""

BALANCE = """\
LATEX = r"1 - (\\theta / 0.2)^2 - 2\\,(x - PLACE)^2"
TERMS = {"alive": "1 for every step", "angle": "cost of the squared angle", "place": "cost of the squared distance"}


def reward(state, action, next_state, memory, np):
    return {
        "alive": np.ones_like(next_state.pole_angle),
        "angle": -np.square(next_state.pole_angle / 0.2),
        "place": -2.0 * np.square(next_state.x_position - PLACE),
    }
"""

# It does not measure the position of the cart.
JUDGE = """\
def judge(trajectory, np):
    steps = len(trajectory.action)
    seconds = steps * 0.04
    lasted = min(steps / 1000.0, 1.0) if trajectory.terminated else 1.0
    angle = float(np.abs(trajectory.pole_angle).mean())
    upright = min(max((0.2 - angle) / 0.15, 0.0), 1.0)
    return {
        "score": lasted * upright,
        "criteria": {"lasted": lasted, "upright": upright},
        "evidence": {"seconds": seconds, "mean_angle_rad": angle},
    }
"""

# The last half of the episode: the way to the place does not count.
CHECK = """\
def check(trajectory, np):
    x = trajectory.x_position
    return {"mean_place_m": float(x[len(x) // 2 :].mean())}
"""

UP, MIDDLE, STILL = "the pole stands", "the cart is in the middle", "it is calm"
QUESTION = "Where is the cart on its rail?"
PLACES = {2: 0.5, 3: 0.4, 4: 0.3, 5: 0.0}
"""Where the reward of an iteration wants the cart, m."""


def at(place: float) -> str:
    """A reward that balances there."""
    return BALANCE.replace("PLACE", f"{place:g}" if place >= 0 else f"({place:g})")


def code(source: str) -> str:
    """A fenced module."""
    return f"```python\n{source}```\n"


def data(value: object) -> str:
    """A fenced JSON object."""
    return f"```json\n{json.dumps(value)}\n```\n"


def revision(based_on: int, diagnosis: str, lesson: str, change: str, source: str) -> str:
    """A whole reply of the reviser."""
    return (
        f"## Diagnosis\n{diagnosis}\n\n## Lesson\n{lesson}\n\n## Based on\n{based_on}\n\n"
        f"## Planned change\n{change}\n\n{code(source)}"
    )


class Course:
    """The current iteration of the session, according to the reviser's answers."""

    def __init__(self) -> None:
        self.iteration = 1

    def role(self, words: str, *iterations: int) -> Callable[[Request], bool]:
        """Accepts requests of a role in these iterations; in all if none is named."""
        return lambda request: words in request.text("system") and (not iterations or self.iteration in iterations)

    def begins(self, number: int) -> Callable[[Request], bool]:
        """Accepts the reviser's request after its tool calls, and begins an iteration."""

        def accepts(request: Request) -> bool:
            looked = any(message["role"] == "tool" for message in request.body["messages"])
            if "You are the reviser" not in request.text("system") or self.iteration != number - 1 or not looked:
                return False
            self.iteration = number
            return True

        return accepts


def vote(up: str, middle: str, still: str, diagnosis: str) -> str:
    """A vote of the video judge."""
    statuses = {UP: up, MIDDLE: middle, STILL: still}
    entries = [{"title": title, "seen": "frames 1 to 4", "status": status} for title, status in statuses.items()]
    return data({"criteria": entries, "diagnosis": diagnosis})


def settled() -> str:
    """The synthesiser's verdict: the code measures correctly, but not the position."""
    code_side = [
        {"name": name, "source": "code", "status": "met", "evidence": "as measured"} for name in ("lasted", "upright")
    ]
    seen = {UP: "partly", MIDDLE: "not_met", STILL: "not_met"}
    video = [{"name": n, "source": "video", "status": s, "evidence": "mean_place_m"} for n, s in seen.items()]
    reasoning = "The check puts the cart far from the middle, which the code never looks at; the pictures show it."
    return data({"criteria": [*code_side, *video], "decided_by": "video", "reasoning": reasoning})


def script() -> list[Answer]:
    """The answers of one session."""
    course = Course()
    role = course.role
    looks = (Call("get_scores"), Call("get_lineage"), Call("get_judgments", {"number": 2}))
    compares = (Call("compare_iterations", {"first": 2, "second": 4}), Call("get_changes"), Call("get_lessons"))
    return [
        Answer(
            data({"approved": True, "summary": "Its terms are right.", "findings": []}),
            when="code reviewer",
            repeat=True,
        ),
        Answer(
            f"## Reasoning\nThe angle measures how upright it is.\n\n{code(FALLING)}", when=role("the reward author")
        ),
        Answer(
            "## Reasoning\nHow long the pole stays up, and how straight.\n\n"
            f"## Null controls\nrandom, untrained, motionless\n\n{code(JUDGE)}",
            when=role("the judge author"),
        ),
        Answer(
            data(
                {
                    "criteria": [
                        {"title": title, "description": f"{title}, in all frames"} for title in (UP, MIDDLE, STILL)
                    ]
                }
            ),
            when=role("You list what a judge has to look for"),
        ),
        Answer(vote("not_met", "partly", "not_met", "it falls"), when=role("You are the video judge", 1), repeat=True),
        Answer(
            vote("met", "not_met", "partly", "it stands aside"),
            when=role("You are the video judge", 2, 3, 4),
            repeat=True,
        ),
        Answer(
            vote("met", "met", "met", "it stands in the middle"), when=role("You are the video judge", 5), repeat=True
        ),
        *synthesis(course),
        Answer(
            calls=(Call("get_iteration", {"number": 1}), Call("get_dynamics", {"number": 1})), when=revises(course, 1)
        ),
        Answer(
            revision(1, "The pole falls at once.", "HARD: a good step must pay.", "Pay 1 for a step.", at(PLACES[2])),
            when=course.begins(2),
        ),
        Answer(calls=looks, when=revises(course, 2)),
        Answer(
            revision(2, "The cart stands aside.", "SOFT: the place matters.", "Charge for the place alone.", FALLING),
            when=course.begins(3),
        ),
        Answer(
            f"## Reasoning\nIt paid most for what was judged worst.\n\n{code(at(PLACES[3]))}",
            when=role("the reward author"),
        ),
        Answer(
            calls=(Call("get_rollouts", {"number": 3}), Call("get_reward_code", {"number": 3})), when=revises(course, 3)
        ),
        Answer(
            revision(3, "Still aside.", "SOFT: 0.1 m is too little.", "Nearer to the middle.", at(PLACES[4])),
            when=course.begins(4),
        ),
        Answer(calls=compares, when=revises(course, 4)),
        Answer(
            revision(2, "All stand aside.", "STRONG: 0 is the middle.", "From 2 again, with 0.", at(PLACES[5])),
            when=course.begins(5),
        ),
    ]


def revises(course: Course, iteration: int) -> Callable[[Request], bool]:
    """Accepts the reviser's first request after an iteration."""

    def accepts(request: Request) -> bool:
        looked = any(message["role"] == "tool" for message in request.body["messages"])
        return "You are the reviser" in request.text("system") and course.iteration == iteration and not looked

    return accepts


def synthesis(course: Course) -> list[Answer]:
    """Two tool calls, then the verdict, for any number of rollouts."""

    def looked(request: Request) -> bool:
        return "You are the synthesiser" in request.text("system") and any(
            message["role"] == "tool" for message in request.body["messages"]
        )

    asks = Call("ask_video", {"question": QUESTION, "start": 0.0, "end": 1.0, "fps": 4})
    return [
        Answer(settled(), when=looked, repeat=True),
        Answer(
            calls=(asks, Call("run_check", {"code": CHECK})), when=course.role("You are the synthesiser"), repeat=True
        ),
        Answer(
            data({"answer": "Near the end of its rail.", "certain": True}),
            when=course.role("You look at pictures of a simulated robot"),
            repeat=True,
        ),
    ]


SCRIPT = script
