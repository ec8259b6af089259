"""Rates of trainings on GPUs, measured by `benchmarks/gpu_training.py` and written to the package by `tools/device_rates.py`.

There is no file as long as no result is committed: then no rate of a GPU is known.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

FILE = "device_rates.toml"
_NEAR = 2.0
"""A rate counts for trainings of up to this many times more or fewer environments and members."""


@dataclass(frozen=True)
class DeviceRate:
    """A measured rate.

    :param device: name of the GPU.
    :param members: trained together.
    :param worlds: environments of all members together.
    :param steps_per_second: environment steps per second of training, over all members, start not counted.
    :param startup_seconds: until the first update, compilation counted.
    :param source: the committed file of results.
    """

    environment: str
    device: str
    members: int
    worlds: int
    steps_per_second: float
    startup_seconds: float
    source: str

    def effective(self, steps: int) -> float:
        """Return environment steps per second of a training of that many steps over all members, start counted."""
        return steps / (self.startup_seconds + steps / self.steps_per_second)

    def distance(self, members: int, worlds: int) -> float:
        """Return how far another load is: 1 for twice or half as many members or environments, infinite from there on."""
        largest = max(abs(math.log2(members / self.members)), abs(math.log2(worlds / self.worlds)))
        return largest if largest <= math.log2(_NEAR) else math.inf


def nearest(rates: Sequence[DeviceRate], environment: str, *, members: int, worlds: int) -> DeviceRate | None:
    """Return the rate in the environment that was measured with the nearest load; None if none is near."""
    fitting = [rate for rate in rates if rate.environment == environment]
    best = min(fitting, key=lambda rate: rate.distance(members, worlds), default=None)
    return best if best is not None and math.isfinite(best.distance(members, worlds)) else None


@functools.cache
def device_rates() -> tuple[DeviceRate, ...]:
    """Return all rates of the package."""
    file = resources.files("dressage.training").joinpath(FILE)
    return parse_rates(file.read_text("utf-8")) if file.is_file() else ()


def parse_rates(text: str) -> tuple[DeviceRate, ...]:
    """Return the rates that a TOML file holds."""
    return tuple(DeviceRate(**entry) for entry in tomllib.loads(text).get("rate", ()))
