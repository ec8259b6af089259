"""Defaults by environment, from ``defaults.toml``."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dressage_orchestrator.methods.parameters.variants import PAPER

_TABLES = {PAPER.name: "paper"}


@dataclass(frozen=True)
class Defaults:
    """Defaults of one environment for one search.

    :param optimum: return that prompts give as the optimum; None: unknown.
    :param revision_threshold: tau_c; None: none.
    :param step_size: step of exploration.
    :param warmup: random candidates before the first call of a model.
    :param horizon: steps after which an episode is truncated; 0: the environment's.
    :param policy: kind of policy; empty: by the spaces of the environment.
    """

    optimum: float | None = None
    revision_threshold: float | None = None
    step_size: float = 1.0
    warmup: int = 20
    horizon: int = 0
    policy: str = ""


def defaults_of(profile: str, environment: str, search: str) -> Defaults:
    """Return the defaults of an environment; those of ``default`` for one that the table does not have."""
    table = _read()[_TABLES.get(profile, profile)]
    values: dict[str, Any] = {**table["default"], **table.get(environment, {})}
    others, variants = values.pop("others", {}), values.pop("variants", {})
    if search != "r2po":
        values |= others
    return Defaults(**(values | variants.get(search, {})))


@functools.cache
def _read() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("defaults.toml").read_text("utf-8")
    return tomllib.loads(text)
