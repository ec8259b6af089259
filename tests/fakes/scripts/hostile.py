"""Replies that try to be more than text: markup, scripts, direction overrides, escapes of terminals, and very long words.

A session with the intent "balance the pole" on InvertedPendulum-v5 and a vision model has two iterations. Every part of
a reply that is stored contains such texts: terms, criteria, evidence, votes, the synthesis, the revision with its
lesson. A session of the method `code` has a policy that fails with one. The provider refuses an intent with `refuse-mark`
with one.

Each text begins with a mark, such as `lesson-mark`, by which a test finds it.
"""

import json

from openai_server import Answer, Call

MARKUP = (
    '<img src=x onerror="alert(1)"><script>alert(2)</script><style>body{display:none}</style> [x](javascript:alert(3))'
)
OVERRIDE = "\u202edrawkcab"
"""Everything behind it is shown from right to left, unless it is isolated."""
TERMINAL = "\x1b[31mred\x1b]0;title\x07"
WORD = "w" * 300
LONG = "many words " * 9_000  # 100 kB


def text(mark: str, *, length: int | None = None) -> str:
    """A text of one line."""
    return f"{mark} {MARKUP} {OVERRIDE} {TERMINAL} {WORD}"[:length]


# At most 64 characters.
TERM, WIDE_TERM = f"term-mark<img src=x onerror=alert(11)>{OVERRIDE}", "wide" * 16
# At most 120.
CRITERION, WIDE_CRITERION = f"criterion-mark<script>alert(12)</script>{OVERRIDE}", "wide" * 30
EVIDENCE, WIDE_EVIDENCE = f"evidence-mark<img src=x onerror=alert(13)>{OVERRIDE}", "wide" * 29
TITLES = (f"title-mark<img src=x onerror=alert(14)>{OVERRIDE}", "stand" * 24, "calm")

REWARD = f"""\
LATEX = r"1 - x^2"
TERMS = {{{TERM!r}: {text("meaning-mark")!r}, {WIDE_TERM!r}: "cost of the distance"}}


def reward(state, action, next_state, memory, np):
    return {{
        {TERM!r}: np.ones_like(next_state.pole_angle),
        {WIDE_TERM!r}: -FACTOR * np.square(next_state.x_position),
    }}
"""

JUDGE = f"""\
def judge(trajectory, np):
    steps = len(trajectory.action)
    lasted = min(steps / 1000.0, 1.0)
    angle = float(np.abs(trajectory.pole_angle).mean())
    upright = min(max((0.2 - angle) / 0.21, 0.0), 0.95)
    return {{
        "score": lasted * upright,
        "criteria": {{{CRITERION!r}: lasted, {WIDE_CRITERION!r}: upright}},
        "evidence": {{{EVIDENCE!r}: float(steps), {WIDE_EVIDENCE!r}: angle}},
    }}
"""

POLICY = f"""\
class Policy:
    def reset(self):
        pass

    def act(self, obs):
        raise ValueError({text("candidate-mark")!r})
"""


def code(source: str) -> str:
    """A fenced module."""
    return f"```python\n{source}```\n"


def data(value: object) -> str:
    """A fenced JSON object."""
    return f"```json\n{json.dumps(value)}\n```\n"


def vote() -> str:
    """A vote of the video judge, which contradicts the code: the pole has fallen."""
    seen = [{"title": title, "seen": text("seen-mark", length=600), "status": "met"} for title in TITLES]
    return data({"criteria": seen, "diagnosis": text("looks-mark")})


def settled() -> str:
    """The synthesiser's verdict."""
    names = [("code", name) for name in (CRITERION, WIDE_CRITERION)] + [("video", title) for title in TITLES]
    entries = [
        {"name": name, "source": source, "status": "not_met", "evidence": text("settled-mark")}
        for source, name in names
    ]
    return data({"criteria": entries, "decided_by": "code", "reasoning": text("reasoning-mark")})


SCRIPT = [
    Answer(text("failure-mark"), status=400, when="refuse-mark", repeat=True),
    # A refused review is a warning.
    Answer(text("warning-mark"), status=400, when="You are the code reviewer"),
    Answer(
        data({"approved": True, "summary": text("review-mark"), "findings": []}),
        when="You are the code reviewer",
        repeat=True,
    ),
    Answer(
        data(
            {
                "criteria": [
                    {
                        "title": f"wish-mark {number} {MARKUP} {OVERRIDE}",
                        "description": f"at least 1 m, {text('wish-mark')}",
                        "category": "gait",
                    }
                    for number in range(5)
                ],
                "questions": [text("question-mark")],
            }
        ),
        when="You are the elicitor",
        repeat=True,
    ),
    Answer(
        f"## Reasoning\n{text('author-mark')} {LONG}\n\n{code(REWARD.replace('FACTOR', '0.1'))}",
        when="You are the reward author",
    ),
    Answer(
        f"## Reasoning\n{text('judge-mark')}\n\n## Null controls\nrandom, untrained, motionless\n\n{code(JUDGE)}",
        when="You are the judge author",
    ),
    Answer(
        data({"criteria": [{"title": title, "description": text("look-mark")} for title in TITLES]}),
        when="You list what a judge has to look for",
    ),
    Answer(vote(), when="You are the video judge", repeat=True),
    Answer(settled(), when="You are the synthesiser", repeat=True),
    Answer(calls=(Call("get_scores"),), when="You are the reviser"),
    Answer(
        f"## Diagnosis\n{text('diagnosis-mark')} {LONG}\n\n## Lesson\nHARD: {text('lesson-mark')}\n\n## Based on\n1\n\n"
        f"## Notes\n1. {text('addressed-mark')}\n\n"
        f"## Planned change\n{text('change-mark')}\n\n{code(REWARD.replace('FACTOR', '0.5'))}",
        when="You are the reviser",
    ),
    Answer(f"## Explanation\n{text('policy-mark')}\n\n{code(POLICY)}", when="You are the policy author", repeat=True),
]
