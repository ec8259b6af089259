"""Options that commands share, and the parsing of their values."""

from __future__ import annotations

import os
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Annotated

import typer

from dressage.places import data_dir

ENVIRONMENTS = "DRESSAGE_ENVIRONMENTS"
"""Variable that names the folder of the user's own environments; what this process starts inherits it."""


def _with_environments(given: Path | None) -> Path | None:
    """Own environments are those of the data folder in use, unless the user names another folder of them."""
    if not os.environ.get(ENVIRONMENTS):
        os.environ[ENVIRONMENTS] = str(data_dir(given) / "environments")
    return given


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Address = Annotated[
    str | None, typer.Option("--address", metavar="HOST:PORT", envvar="DRESSAGE_ADDRESS", help="Server to speak to.")
]
Token = Annotated[
    str | None, typer.Option("--token", metavar="TOKEN", envvar="DRESSAGE_TOKEN", help="Bearer token for the server.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="DRESSAGE_HOME",
        help="Data folder of this machine.",
        callback=_with_environments,
    ),
]

_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def parse_count(text: str | int) -> int:
    """A positive count; `600k` and `1.5M` are understood.

    :raises typer.BadParameter: if it is none.
    """
    lowered = str(text).strip().lower().replace("_", "").replace(",", "")
    factor = _SUFFIXES.get(lowered[-1:], 1)
    try:
        # Not a float: 4.1 times a million is no whole number there.
        number = Decimal(lowered[:-1] if factor > 1 else lowered) * factor
    except DecimalException:
        number = Decimal(-1)
    if not number.is_finite() or not 0 < number <= 10**11 or number != int(number):
        raise typer.BadParameter(f"{str(text)!r} is no positive whole number (for example 500000, 600k or 1.5M)")
    return int(number)
