"""Renders plans as Python source with the Jinja2 templates of this package."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.plans import JudgePlan, RewardPlan
from dressage_llm_agent.template.targets import long_enough
from dressage_llm_agent.template.vocabulary import WORDS_FOR

if TYPE_CHECKING:
    from jinja2 import Environment


def render_reward(plan: RewardPlan, intent: ParsedIntent) -> str:
    """Return the reward as a module of the vectorised contract."""
    latex = " + ".join(rf"{number(term.weight)}\,{term.latex}" for term in plan.terms).replace("+ -", "- ")
    return _render("reward.py.j2", intent=intent, latex=latex, terms=plan.terms)


def render_judge(plan: JudgePlan, intent: ParsedIntent, card: EnvironmentCard) -> str:
    """Return the judge as a module that needs only numpy."""
    return _render(
        "judge.py.j2",
        intent=intent,
        grades=plan.grades,
        axis=intent.axis if intent.kind == "move" else "x",
        names=_names_used(plan),
        long_enough=number(long_enough(card)),
        time_step=number(card.time_step),
        max_episode_steps=card.max_episode_steps,
        rows_per_second=max(round(1.0 / card.time_step), 1),
    )


# The names of the prelude that a name is computed from.
_REQUIRED_NAMES = {"velocity_by_second": {"mean_velocity", "long_enough", "x"}, "mean_velocity": {"long_enough", "x"}}


def _names_used(plan: JudgePlan) -> set[str]:
    """Names of the prelude that the plan's measures need, without attributes such as ``trajectory.x_velocity``."""
    names = {name for grade in plan.grades for name in re.findall(r"(?<![\w.])[a-z]\w*", grade.measure)}
    return names.union(*(_REQUIRED_NAMES.get(name, set()) for name in names))


def intent_words(intent: ParsedIntent) -> str:
    """Return the intent as a phrase: ``Run forward fast``."""
    words = [intent.words, *(WORDS_FOR[quality] for quality in sorted(intent.qualities))]
    if intent.speed is not None:
        words.append(f"at {number(intent.speed)} m/s")
    return " ".join(words).capitalize()


def number(value: float) -> str:
    """Return a float as a short Python literal: ``0.1``, ``2.0``."""
    text = f"{value:.6g}"
    return text if any(mark in text for mark in ".en") else f"{text}.0"


def _render(name: str, *, intent: ParsedIntent, **values: object) -> str:
    template = _environment().get_template(name)
    return template.render(intent_words=intent_words(intent), environment=intent.environment, **values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # The output is Python, not HTML, from values of this package: escaping would break it.
    environment = Environment(
        loader=PackageLoader("dressage_llm_agent.template", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["number"] = number
    return environment
