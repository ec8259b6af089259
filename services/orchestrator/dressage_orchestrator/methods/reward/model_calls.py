"""How many model calls an iteration needs: expected, and between which bounds. Pure.

The first iteration has two authors, later ones a reviser that reads the history by tools. All code is reviewed, and repaired
where it fails. A vision model casts votes on the rollouts that decide; where it and the code judge differ, a synthesiser asks
further questions. The expected numbers are estimates, which no provider's bill has confirmed; the bounds are the limits of the
roles.
"""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle.method import RoleCalls
from dressage_orchestrator.lifecycle.role_models import model_of

_REVIEWS, _MOST_REVIEWS = 1.5, 3
_REPAIRS, _MOST_REPAIRS = 0.5, 5
_TOOL_ROUNDS, _MOST_TOOL_ROUNDS = 4, 16
_VOTES = 3
_DIFFERENCES = 0.25
"""Share of rollouts on which the code judge and the vision model differ."""
_SYNTHESIS, _MOST_SYNTHESIS = 3, 9
"""Calls to settle a difference: rounds with tools, and the questions about the video."""
_REPLY_PROBLEM = 1
"""A reply that cannot be used is asked for once more."""

_TOKENS = {
    "reward_author": (7_000, 2_500),
    "judge_author": (7_000, 2_500),
    "code_reviewer": (8_000, 1_500),
    "reviser": (14_000, 2_000),
    "video_criteria": (5_000, 500),
    "video_judge": (6_000, 600),
    "synthesiser": (7_000, 800),
}
"""Tokens sent and received in a call, by role. A conversation sends its beginning again in each round."""
_THINKING = {"low": 1.5, "medium": 2.0, "high": 3.0, "xhigh": 5.0, "max": 8.0}
"""Factor of the tokens received, by reasoning effort."""


def model_calls(spec: v1.SessionSpec) -> tuple[RoleCalls, ...]:
    """Return the calls of an iteration of a filled spec, averaged over its iterations, by role."""
    reward, n = spec.reward, max(1, spec.max_iterations)
    if reward.train_only:
        return ()
    author = int(not reward.reward_source)
    judge = int(not spec.judge_source and spec.video_judging != v1.VIDEO_JUDGING_ONLY)
    later = (n - 1) / n  # share of the iterations with a reviser
    codes, most_codes = (author + judge) / n + later, max(author + judge, int(n > 1))
    writes = author or n > 1
    calls = [
        _calls(
            spec,
            "reward_author",
            author if n == 1 else 0,
            author / n + _REPAIRS * writes,
            author + _MOST_REPAIRS * writes,
        ),
        _calls(spec, "judge_author", judge if n == 1 else 0, judge * (1 + _REPAIRS) / n, judge * (1 + _MOST_REPAIRS)),
        _calls(spec, "code_reviewer", min(author + judge, int(n > 1)), _REVIEWS * codes, _MOST_REVIEWS * most_codes),
    ]
    if n > 1:
        calls.append(_calls(spec, "reviser", 0, later * (1 + _TOOL_ROUNDS), 1 + _MOST_TOOL_ROUNDS + _REPLY_PROBLEM))
    if spec.video_judging != v1.VIDEO_JUDGING_NONE:
        calls += _video(spec, n)
    return tuple(entry for entry in calls if entry.most)


def _video(spec: v1.SessionSpec, n: int) -> list[RoleCalls]:
    """The calls of the vision model. Confirmations judge the best config again, in about one iteration of a session."""
    seeds = spec.reward.seeds
    each = (3.0, 3.0, 3.0) if spec.video_judging == v1.VIDEO_JUDGING_ALL else (1.0, 1.5, 2.0)
    least, expected, most = seeds * each[0], seeds * each[1] * (1 + 1 / n), 2 * seeds * each[2]
    votes = spec.video_options.votes or _VOTES
    compared = spec.video_judging != v1.VIDEO_JUDGING_ONLY  # with the verdict of a code judge
    differ = expected * _DIFFERENCES * compared
    return [
        _calls(spec, "video_criteria", 0, 1 / n, 1 + _REPLY_PROBLEM),
        _calls(spec, "video_judge", votes * least, votes * expected, votes * most * (1 + _REPLY_PROBLEM)),
        _calls(spec, "synthesiser", 0, differ * _SYNTHESIS, most * _MOST_SYNTHESIS * compared),
    ]


def _calls(spec: v1.SessionSpec, role: str, least: float, expected: float, most: float) -> RoleCalls:
    sent, received = _TOKENS[role]
    factor = _THINKING.get(model_of(spec, role).thinking, 1.0)
    return RoleCalls(role, least, expected, most, sent, round(factor * received))
