"""The settings of the code method: profiles, defaults, rejected combinations, the estimate of a round. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument

from dressage_orchestrator.lifecycle.method import Estimate
from dressage_orchestrator.lifecycle.report import CONFIRMATION_SEED, EVALUATION_SEED, target_of
from dressage_orchestrator.models import TEMPLATE

NAME = "code"
CORRECTED = "corrected"
PAPER = "promptpo-paper"
ROUNDS = 10
SELECTION_EPISODES = 20
"""Episodes of each round's winner on selection seeds."""

_TOKENS_PER_CALL = (6_000, 2_000)
_SOURCE_FIELD = "spec.code.policy_source"


@dataclass(frozen=True)
class Profile:
    """Settings to start from.

    :param repairs: repairs of a candidate.
    :param rotate_seeds: whether each round is evaluated on other seeds.
    :param show_losers: whether prompts contain the results of all candidates, not only of the rounds' winners.
    :param deliver_last: whether the winner of the last round is delivered, instead of the best one on selection seeds.
    :param stop_at_target: whether the session ends when a policy reaches the target, instead of after all rounds.
    """

    repairs: int
    rotate_seeds: bool
    show_losers: bool
    deliver_last: bool
    stop_at_target: bool


_PROFILES = {
    CORRECTED: Profile(3, rotate_seeds=True, show_losers=True, deliver_last=False, stop_at_target=True),
    PAPER: Profile(10, rotate_seeds=False, show_losers=False, deliver_last=True, stop_at_target=False),
}


def profile_of(spec: v1.SessionSpec) -> Profile:
    """Return the profile of a spec."""
    return _PROFILES[spec.code.profile or CORRECTED]


def fill(spec: v1.SessionSpec) -> None:
    """Fill in what is not set."""
    code = spec.code
    code.SetInParent()
    code.profile = code.profile or CORRECTED
    profile = _PROFILES[code.profile]
    written = not (code.policy_source and spec.model in ("", TEMPLATE))
    spec.max_iterations = (spec.max_iterations or ROUNDS) if written else 1
    code.candidates = code.candidates or 10
    code.episodes = code.episodes or 5
    code.report_episodes = code.report_episodes or 100
    defaults = v1.CodeSpec(
        feedback=written, reflection=written, rotate_seeds=profile.rotate_seeds, repairs=profile.repairs
    )
    defaults.MergeFrom(code)
    code.CopyFrom(defaults)
    code.act_seconds = code.act_seconds or 1.0
    code.episode_seconds = code.episode_seconds or 60.0
    code.candidate_seconds = code.candidate_seconds or 300.0
    target = load_card(spec.environment.removeprefix("environments/")).target
    if not code.HasField("target") and target is not None:
        code.target = target


def target(spec: v1.SessionSpec) -> float:
    """Return the mean return required to succeed.

    :raises InvalidArgument: when neither the spec nor the card has one.
    """
    return target_of(spec, spec.code.target if spec.code.HasField("target") else None, card_target=None)


def horizon(spec: v1.SessionSpec) -> int:
    """Return the maximum number of steps of an episode."""
    card = load_card(spec.environment.removeprefix("environments/"))
    return spec.environment_options.max_episode_steps or card.max_episode_steps


def validate(spec: v1.SessionSpec) -> None:
    """Reject a filled spec that cannot be run.

    :raises InvalidArgument: naming the field.
    """
    code, card = spec.code, load_card(spec.environment.removeprefix("environments/"))
    if NAME not in card.methods:
        expected = f"an environment that supports the method `code`; {card.id} supports {', '.join(card.methods)}"
        raise InvalidArgument(field="spec.environment", value=spec.environment, expected=expected)
    target(spec)
    if spec.model == TEMPLATE and not code.policy_source:
        expected = (
            "a language model, because the built-in author writes no policies. Name a model and set its provider's key, "
            "replay a recorded session, or give a policy of your own as the setting policy_source"
        )
        raise InvalidArgument(field="spec.model", value=spec.model, expected=expected)
    if code.policy_source and not code.policy_source.strip():
        raise InvalidArgument(field=_SOURCE_FIELD, value=code.policy_source, expected="a Python class Policy")
    used, available = spec.seed + spec.max_iterations * code.episodes, CONFIRMATION_SEED - EVALUATION_SEED
    if used > available - SELECTION_EPISODES:
        expected = f"seed + max_iterations × episodes of at most {available - SELECTION_EPISODES} (it is {used})"
        raise InvalidArgument(field="spec.seed", value=spec.seed, expected=expected)
    needed = round_env_steps(spec)
    if spec.budget.env_steps and spec.budget.env_steps < needed:
        expected = f"at least {needed}, those of a round (candidates × episodes × horizon), or 0 for no limit"
        raise InvalidArgument(field="spec.budget.env_steps", value=spec.budget.env_steps, expected=expected)


def round_env_steps(spec: v1.SessionSpec) -> int:
    """Return the largest number of environment steps of a filled spec's round without repairs."""
    return spec.code.candidates * spec.code.episodes * horizon(spec)


def estimate(spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
    """Return the estimate of a round: the candidates' authors, the reflection, and the episodes."""
    code = spec.code
    calls = 0 if spec.model == TEMPLATE else code.candidates + int(code.reflection) + int(code.feedback)
    prompt, reply = _TOKENS_PER_CALL
    return Estimate(
        env_steps=code.candidates * code.episodes * episode_steps,
        model_calls=calls,
        input_tokens=calls * prompt,
        output_tokens=calls * reply,
    )


def selection_seeds() -> list[int]:
    """Return the seeds on which the winners of rounds are compared; neither rounds nor the report use them."""
    return list(range(CONFIRMATION_SEED - SELECTION_EPISODES, CONFIRMATION_SEED))
