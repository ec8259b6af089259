"""Counts as people write them: `600k`, `1.5M`."""

from __future__ import annotations

from decimal import Decimal, DecimalException

import typer

_MAXIMUM = 10**11
_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def parse_count(text: str | int, minimum: float = 1, maximum: float | None = None) -> int:
    """Return a count; `600k` and `1.5M` are accepted.

    :raises typer.BadParameter: for anything else.
    """
    lowered = str(text).strip().lower().replace("_", "").replace(",", "")
    factor = _SUFFIXES.get(lowered[-1:], 1)
    try:
        # Not a float: 4.1 times a million is no whole number there.
        number = Decimal(lowered[:-1] if factor > 1 else lowered) * factor
    except DecimalException:
        number = Decimal(-1)
    if not number.is_finite() or not minimum <= number <= (maximum or _MAXIMUM) or number != int(number):
        range_text = f"from {minimum:.0f} to {maximum or _MAXIMUM:,.0f}"
        raise typer.BadParameter(f"{str(text)!r} is not a whole number {range_text} (for example 500000, 600k or 1.5M)")
    return int(number)
