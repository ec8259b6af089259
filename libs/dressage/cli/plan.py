"""The plan of a session: what it will train and spend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dressage.api.v1 import session_service_pb2 as pb
from dressage.cli import output
from dressage.sdk.methods import REWARD
from dressage.sdk.preflight import TEMPLATE
from dressage.sdk.texts import duration, quantity, short
from dressage.training.hyperparameters import STEP_FACTORS

_MAX_SETTING = 60
_WITHOUT_MODEL = ("random", "hill_climb", "cma_es", "sb3_")
"""Searches of the method `parameters` without a model, or how their names begin."""


def plan_dict(estimate: pb.EstimateSessionResponse) -> dict[str, Any]:
    """Return the plan as JSON values; names of upper limits begin with `max`."""
    spec = estimate.spec
    iterations = max(spec.max_iterations, 1)
    dollars = estimate.dollars_per_iteration if estimate.HasField("dollars_per_iteration") else None
    return {
        "intent": spec.intent,
        "environment": short(spec.environment),
        "model": spec.model,
        "models": [
            spec.model,
            *(f"{name}: {entry.model}" for name, entry in sorted(spec.roles.items()) if entry.model),
        ],
        "uses_language_model": estimate.uses_language_model,
        "max_iterations": iterations,
        "method": estimate.method or REWARD,
        "goal": estimate.goal,
        "note": estimate.note,
        "settings": _settings(estimate),
        "seeds": spec.reward.seeds,
        "configs": max(len(spec.reward.configs), 1),
        "pass_threshold": spec.pass_threshold,
        "env_steps_per_iteration": estimate.env_steps_per_iteration,
        "max_env_steps": round(_first(estimate) * (1 + (iterations - 1) * _growth(estimate))),
        "most_env_steps_per_iteration": _first(estimate),
        "minutes_per_iteration": estimate.minutes_per_iteration,
        "most_minutes_per_iteration": max(estimate.most_minutes_per_iteration, estimate.minutes_per_iteration),
        "measured": estimate.measured,
        "model_calls_per_iteration": estimate.model_calls_per_iteration,
        "least_model_calls_per_iteration": estimate.least_model_calls_per_iteration,
        "most_model_calls_per_iteration": estimate.most_model_calls_per_iteration,
        "dollars_per_iteration": dollars,
        "least_dollars_per_iteration": None if dollars is None else estimate.least_dollars_per_iteration,
        "most_dollars_per_iteration": None if dollars is None else estimate.most_dollars_per_iteration,
        "max_dollars": None if dollars is None else estimate.most_dollars_per_iteration * iterations,
        "max_episode_steps": estimate.max_episode_steps,
        "terminates_when_unhealthy": estimate.terminates_when_unhealthy,
        "options_of_author": list(estimate.options_of_author),
    }


def _growth(estimate: pb.EstimateSessionResponse) -> float:
    """Return by which factor a later iteration may exceed the first: with tuning, by length and by one more config."""
    reward = estimate.spec.reward
    configs = max(len(reward.configs), 1)
    # The first may already continue as long as an author may ask for.
    length = STEP_FACTORS[1] * reward.steps_per_member / max(reward.max_steps_per_member, reward.steps_per_member, 1)
    return max(1.0, length) * (configs + 1) / configs if reward.tune_hyperparameters else 1.0


def _first(estimate: pb.EstimateSessionResponse) -> int:
    """Return the largest number of environment steps of the first iteration."""
    return max(estimate.most_env_steps_per_iteration, estimate.env_steps_per_iteration)


def _settings(estimate: pb.EstimateSessionResponse) -> dict[str, Any]:
    """Return the settings of a method other than `reward`."""
    spec = output.message_dict(estimate.spec)
    chosen = estimate.spec.WhichOneof("method_spec")
    if chosen in (None, REWARD):
        return {}
    return {name: value for name, value in spec[chosen].items() if not name.startswith("@")}


def _setting(value: Any) -> str:
    """Return a setting on one line; a source text is only counted."""
    text = str(value)
    return text if len(text) <= _MAX_SETTING and "\n" not in text else f"({len(text):,} characters)"


def plan_text(estimate: pb.EstimateSessionResponse) -> Any:
    """Return the plan as text."""
    from rich.text import Text

    plan = plan_dict(estimate)
    iterations = plan["max_iterations"]
    times = f", at most {iterations} iterations" if iterations > 1 else ", one iteration"
    text = Text()
    text.append(f"{plan['intent']}", style="bold")
    text.append(f"  in {plan['environment']}\n")
    seconds = 60 * plan["minutes_per_iteration"]
    minutes = f"about {duration(seconds)}" if seconds >= 0.5 else "less than a second"
    steps = quantity(plan["env_steps_per_iteration"], "environment step")
    if plan["method"] == REWARD:
        seeds = f"{quantity(plan['configs'], 'config')} × {quantity(plan['seeds'], 'seed')}"
        text.append(f"  training  {steps} ({seeds}), {minutes} an iteration{times}\n")
        if plan["most_env_steps_per_iteration"] > plan["env_steps_per_iteration"]:
            most, longest = plan["most_env_steps_per_iteration"], duration(60 * plan["most_minutes_per_iteration"])
            text.append(f"            continues while it improves: at most {most:,} steps, {longest} an iteration\n")
        if plan["measured"]:
            text.append(f"            expected from measured sessions: {plan['measured']}\n")
        elif plan["most_env_steps_per_iteration"] > plan["env_steps_per_iteration"]:
            text.append("            no measured time for this intent: expected from the steps and their usual speed\n")
        if estimate.spec.reward.tune_hyperparameters and iterations > 1:
            most = quantity(plan["max_env_steps"], "environment step")
            text.append(f"            the author may change the length and add a config: at most {most} in all\n")
    else:
        settings = ", ".join(f"{name} {_setting(value)}" for name, value in plan["settings"].items())
        goal = plan["goal"]
        condition = f"a score of {goal}" if goal[:1].isdigit() or goal.startswith("-") else goal
        text.append(f"  method    {plan['method']}; succeeds from {condition}\n")
        text.append(f"  settings  {settings}\n" if settings else "")
        each = f", {minutes} an iteration" if plan["minutes_per_iteration"] else ""
        most = _most_programs(plan) if plan["method"] == "program" else steps
        text.append(f"  search    up to {most}{' an iteration' if iterations > 1 else ''}{each}{times}\n")
    text.append(f"  episodes  {_episodes(plan)}\n" if plan["max_episode_steps"] and plan["method"] == REWARD else "")
    if plan["note"]:
        text.append(f"  note      {plan['note']}\n")
    text.append(f"  author    {_author(plan, train_only=estimate.spec.reward.train_only)}\n")
    return text


_PROGRAM_SEARCHES = ("scheduled_hill_climb", "hill_climb", "cebs", "latent_cem", "latent_cebs", "random")


def _most_programs(plan: dict[str, Any]) -> str:
    """Return how many programs an iteration evaluates at most; rounds of a model's programs have no search."""
    settings = plan["settings"]
    searches = settings.get("search") in _PROGRAM_SEARCHES
    return quantity(int(settings["budget" if searches else "seed_programs"]), "program")


def _author(plan: dict[str, Any], *, train_only: bool) -> str:
    if train_only:
        return "none: training with your reward"
    search = str(plan["settings"].get("search", ""))
    if plan["method"] == "program":
        if not plan["settings"].get("seed_programs"):
            return "none: the search starts from random programs; no cost"
        if not plan["uses_language_model"]:
            return f"{plan['model'] or TEMPLATE}: recorded replies, written by hand; no language model, no cost"
    elif search.startswith(_WITHOUT_MODEL):
        return f"none: {search} uses no language model, no cost; it ignores the words of the intent"
    if not plan["uses_language_model"]:
        model = plan["model"] or TEMPLATE
        replies = "recorded replies" if model.startswith("recorded/") else "built-in templates"
        return f"{model}: {replies}, no language model, no cost"
    dollars = plan["dollars_per_iteration"]
    price = "price unknown"
    if dollars is not None:
        low, high = plan["least_dollars_per_iteration"], plan["most_dollars_per_iteration"]
        price = f"about {dollars:.3f} $ ({low:.3f} to {high:.2f} $)"
    number = quantity(plan["model_calls_per_iteration"], "call")
    bounds = f"{plan['least_model_calls_per_iteration']} to {plan['most_model_calls_per_iteration']}"
    return f"{', '.join(plan['models'])}: about {number} an iteration ({bounds}), {price}"


def _episodes(plan: dict[str, Any]) -> str:
    """Return how long episodes are, what ends them, and what of it the author may change."""
    text = f"at most {quantity(plan['max_episode_steps'], 'step')}; "
    text += "an unhealthy state ends them" if plan["terminates_when_unhealthy"] else "no unhealthy state ends them"
    return text + (
        f"; the author may change {' and '.join(plan['options_of_author'])}" if plan["options_of_author"] else ""
    )


_LONG_MINUTES = 60.0


def confirm(estimate: pb.EstimateSessionResponse, *, ask: Callable[[str], bool] | None) -> bool:
    """Return whether to start.

    The user is asked only on a terminal, and only if model calls may cost money or the session may take over an hour.
    """
    minutes = estimate.minutes_per_iteration * max(estimate.spec.max_iterations, 1)
    long = minutes > _LONG_MINUTES
    if ask is None or not (estimate.uses_language_model or long):
        return True
    return ask(f"The session may take {duration(60 * minutes)}. Start it?" if long else "Start the session?")
