"""The parts of prompts that the roles of policies in Python share."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.policy_lint import ALLOWED_MODULES
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.roles.episodes import describe_episodes

REMEDY = (
    "choose a language model, and set its provider's key where models are called, "
    "or replay a recorded session: `dressage run --replay FOLDER`"
)
"""What to do without a language model."""
IMPORTS = tuple(sorted(ALLOWED_MODULES - {"__future__"}))
"""Modules that policies may import."""
_SHOWN_RETURNS = 20


def contract(card: EnvironmentCard, *, act_seconds: float = 0.0) -> dict[str, str]:
    """Return the values of the contracts' templates."""
    return {
        "observation_form": observation_form(card),
        "action_form": action_form(card),
        "example_action": "0" if card.action_kind == "discrete" else f"np.zeros({card.action_size})",
        "bad_action": bad_action(card),
        "imports": ", ".join(IMPORTS),
        "act_seconds": f"{act_seconds:g}" if act_seconds else "",
    }


def environment(card: EnvironmentCard, horizon: int) -> str:
    """Return the description of the environment."""
    return describe_episodes(card, horizon=horizon)


def observation_form(card: EnvironmentCard) -> str:
    """Return what an observation is, in words."""
    if card.num_observations:
        return f"an int from 0 to {card.num_observations - 1}"
    return f"a float64 array of shape ({card.observation_size},)"


def action_form(card: EnvironmentCard) -> str:
    """Return what an action is, in words."""
    if card.action_kind == "discrete":
        return f"an int from 0 to {card.num_actions - 1}"
    return f"{card.action_size} finite numbers, an array of shape ({card.action_size},); numbers beyond the bounds are clipped"


def bad_action(card: EnvironmentCard) -> str:
    """Return what is no action, in words; continuous actions beyond the bounds are clipped."""
    if card.action_kind == "discrete":
        return "any other action"
    return "an action of another shape or with a number that is not finite"


def policy_trials(history: Sequence[agent_pb.PolicyTrial]) -> list[SimpleNamespace]:
    """Return earlier policies as the templates show them."""
    return [_policy_trial(entry) for entry in history]


def _policy_trial(entry: agent_pb.PolicyTrial) -> SimpleNamespace:
    returns = [f"{value:.6g}" for value in entry.returns[:_SHOWN_RETURNS]]
    more = len(entry.returns) - _SHOWN_RETURNS
    return SimpleNamespace(
        round=entry.round,
        source=entry.source.rstrip(),
        returns=", ".join(returns) + (f" and {more} more" if more > 0 else ""),
        mean_return=f"{sum(entry.returns) / len(entry.returns):.6g}" if entry.returns else "",
        feedback=[" ".join(line.split()) for line in entry.feedback],
        failure=entry.failure or ("" if entry.returns else "it was not evaluated"),
        reflection=" ".join(entry.reflection.split()),
        best_of_round=entry.best_of_round,
    )
