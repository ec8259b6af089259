"""What an argument of a session is; `dressage.api.arguments` lists them, generated from the protos."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Source = str | os.PathLike[str] | Callable[..., Any]
"""Source text or a path; of a reward also a function or class of the contract."""
Criteria = str | os.PathLike[str] | Sequence[str | Mapping[str, Any]]
"""A file of criteria, or titles, or objects with `title` and `description`."""


@dataclass(frozen=True)
class Argument:
    """An argument of a session."""

    name: str
    """Name in Python."""
    flag: str
    """Option of the command line; without dashes a positional argument."""
    kind: Literal[
        "text",
        "choice",
        "integer",
        "count",
        "number",
        "switch",
        "minutes",
        "source",
        "criteria",
        "fields",
        "configs",
        "roles",
    ]
    """How a value is written."""
    paths: tuple[str, ...]
    """Fields of the request; the first one is set."""
    help: str
    """What it is."""
    unset: str = ""
    """What applies if it is not set."""
    group: str = "session"
    metavar: str = ""
    choices: tuple[str, ...] = ()
    prefix: str = ""
    """What the names of an enum have before the choices."""
    minimum: float | None = None
    maximum: float | None = None
    train: bool = False
    """Whether `dressage train` takes it."""
    single: bool = False
    """Whether it is of a single session, not of a benchmark."""
    alias: str = ""
    """Another option with the same effect."""

    @property
    def description(self) -> str:
        """What it is, and in brackets what applies if it is not set."""
        return f"{self.help.removesuffix('.')} [{self.unset}]." if self.unset else self.help
