"""The parts of prompts that the parameter proposer and the critic share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

REMEDY = (
    "choose a language model, and set its provider's key where models are called, "
    "or search without a model, with the setting search=cma_es"
)
"""What to do without a language model."""
_DIGITS = 3
_EXAMPLE = 4


def written(values: Iterable[float], form: agent_pb.ParameterForm) -> str:
    """Return parameters as they are written in prompts: integers, or rounded to the form's significant digits."""
    if form.choices:
        return ", ".join(f"{value:g}" for value in values)
    digits = form.digits or _DIGITS
    # Adding 0 turns -0 into 0.
    return ", ".join(
        f"{float(f'{value:.{digits}g}') + 0:g}" if digits <= 6 else f"{value:.{digits}g}" for value in values
    )


def trial(entry: agent_pb.ParameterTrial, form: agent_pb.ParameterForm) -> dict[str, object]:
    """Return an evaluated vector as the templates show it."""
    return {
        "values": written(entry.values, form),
        "mean_return": f"{entry.mean_return:.2f}",
        "episodes": entry.episodes,
        "iteration": entry.iteration,
        "warmup": entry.iteration == 0,
        "rollout": entry.rollout,
    }


def trials(history: Sequence[agent_pb.ParameterTrial], form: agent_pb.ParameterForm) -> list[dict[str, object]]:
    """Return a history as the templates show it."""
    return [trial(entry, form) for entry in history]


def example(form: agent_pb.ParameterForm) -> str:
    """Return the example of a reply's array, of the length that fits a line."""
    pattern = ("1", "0", "1", "0") if form.choices else ("0.5", "-1.2", "0", "2.3")
    shown = ", ".join(pattern[: min(form.size, _EXAMPLE)])
    return f"[{shown}{', …' if form.size > _EXAMPLE else ''}]"


def structure(form: agent_pb.ParameterForm, card: EnvironmentCard) -> str:
    """Return how a policy acts, and what each of its parameters is, in words."""
    outputs = card.num_actions or card.action_size
    decision = (
        f"the action with the highest of {outputs} scores is taken"
        if card.num_actions
        else f"the {outputs} outputs are the action, clipped to its bounds"
    )
    if form.kind == "table":
        return f"A table: params[s] is the action that is taken where the observation is s, from 0 to {form.size - 1}."
    if form.kind == "linear":
        return f"Linear: outputs = W·observation{' + b' if form.bias else ''}; {decision}.\n" + _rows(
            form, outputs, card.observation_size, "observation component"
        )
    if form.kind == "random_features":
        features = max((form.size - (outputs if form.bias else 0)) // outputs, 1)
        return (
            f"{features} fixed random features of the observation, each between -1 and 1 (tanh of a fixed linear map), "
            f"and a linear output on them: outputs = W·features{' + b' if form.bias else ''}; {decision}.\n"
            + _rows(form, outputs, features, "feature")
        )
    if form.kind == "projected_mlp":
        return (
            f"A small tanh network; {decision}. The parameters are not its weights: each layer's weights are fixed random "
            "linear combinations of that layer's share of the parameters, the first layer's share first."
        )
    return f"A tanh network; {decision}. The parameters are its weights, layer by layer, each row by row and then its biases."


def _rows(form: agent_pb.ParameterForm, outputs: int, inputs: int, noun: str) -> str:
    """The order of the parameters of a matrix and a bias."""
    lines = [
        f"  params[{row * inputs}] to params[{(row + 1) * inputs - 1}]: output {row}, one weight for each {noun}"
        for row in range(outputs)
    ]
    if form.bias:
        first = outputs * inputs
        lines.append(f"  params[{first}] to params[{first + outputs - 1}]: the bias of each output")
    return "\n".join(lines)
