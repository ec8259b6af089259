"""Defaults by environment, from the tables ``search.corrected`` and ``search.paper`` of its description.

Their keys are those of `Defaults`; those of ``others`` apply to all searches but r2po, those of ``variants.NAME`` to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dressage.envs.catalogue import catalogue

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
    """Return the defaults of an environment; those of `Defaults` for one that states none."""
    entry = catalogue().get(environment)
    tables: Mapping[str, Any] = entry.table("search") if entry is not None else {}
    values = dict(tables.get(_TABLES.get(profile, profile), {}))
    others, variants = values.pop("others", {}), values.pop("variants", {})
    if search != "r2po":
        values |= others
    return Defaults(**(values | variants.get(search, {})))
