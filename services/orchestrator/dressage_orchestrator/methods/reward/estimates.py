"""How long an iteration takes, and how many model calls it needs. Pure.

The duration uses the speed of earlier runs of the kind where there are any, and else the speed in the environment's preset.
Simulation is most of a stacked training's time.

The first iteration has two authors, later ones a reviser that reads the history by tools. All code is reviewed, and repaired
where it fails. A vision model casts votes on the rollouts that decide; where it and the code judge differ, a synthesiser asks
further questions. The expected numbers of calls are estimates, which no provider's bill has confirmed; the bounds are the
limits of the roles.
"""

from __future__ import annotations

from collections.abc import Iterable

from dressage.api.v1 import session_pb2 as v1
from dressage.training.preset import Preset, load_preset

from dressage_orchestrator.lifecycle.method import Load, RoleCalls
from dressage_orchestrator.models import model_of

_SB3_SHARE = 0.45
"""Speed of Stable-Baselines3's PPO, one member after the other, as a share of a stacked training's on one core (0.4 to 0.7)."""
_SB3_SAC = 40.0
"""Environment steps per second of Stable-Baselines3's SAC, which takes a gradient step for each of them."""
_SAC_UPDATES = 130.0
"""Gradient steps per second of the stacked SAC on one core, with its default networks and minibatches."""
_EVALUATION_COST = 2.0
"""Stacked steps that take as long as one step of evaluation, which plays reference environments one at a time."""
_RUN_SECONDS = 15.0
"""Starting a trainer and compiling its update."""
_ITERATION_SECONDS = 10.0
"""Checking, judging and rendering."""


def kind_of_run(spec: v1.SessionSpec) -> str:
    """Return the name under which equally fast runs are counted: the environment, and who trains."""
    environment, reward = spec.environment.removeprefix("environments/"), spec.reward
    stacked_ppo = reward.backend == "jax" and reward.algorithm == "ppo"
    return environment if stacked_ppo else f"{environment} {reward.backend} {reward.algorithm}"


def load_of(environment: str, members: Iterable[v1.Hyperparameters], steps: int) -> Load:
    """Return the load of a training.

    :param environment: id.
    :param members: hyperparameters of each; what is not set is the preset's.
    :param steps: environment steps of a member.
    """
    default = load_preset(environment).ppo.num_envs
    worlds = [values.num_envs if values.HasField("num_envs") else default for values in members]
    return Load(len(worlds), sum(worlds), steps)


def iteration_seconds(
    spec: v1.SessionSpec, *, env_steps: int, evaluation_env_steps: int, cores: int, rate: float | None
) -> float:
    """Return the expected duration of an iteration of a filled spec, in seconds.

    :param env_steps: of training, over all members.
    :param rate: environment steps per second of earlier runs of the kind, start and evaluation counted; None if none.
    """
    if rate is not None:
        return env_steps / rate + _ITERATION_SECONDS
    preset = load_preset(spec.environment.removeprefix("environments/"))
    evaluation = evaluation_env_steps * _EVALUATION_COST / (preset.steps_per_second * cores)
    return env_steps / _speed(spec, preset, cores=cores) + evaluation + _RUN_SECONDS + _ITERATION_SECONDS


def _speed(spec: v1.SessionSpec, preset: Preset, *, cores: int) -> float:
    """Return the environment steps per second over all members, while they train."""
    core = preset.steps_per_second  # the stacked PPO's
    sac, sb3 = spec.reward.algorithm == "sac", spec.reward.backend == "sb3"
    if sb3:
        return _SB3_SAC if sac else core * _SB3_SHARE
    if not sac:
        return core * cores
    values = spec.reward.configs[0].hyperparameters
    ratio = values.updates_per_step if values.HasField("updates_per_step") else preset.sac.updates_per_step
    return cores / (1.0 / core + ratio / _SAC_UPDATES)


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
    prompt, reply = _TOKENS[role]
    factor = _THINKING.get(model_of(spec, role).thinking, 1.0)
    return RoleCalls(role, least, expected, most, prompt, round(factor * reply))
