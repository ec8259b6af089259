"""Checks that values read from JSON have the types that a card's dataclasses declare.

Anything may have written a custom environment's card. A card that passes here can be listed and described without an error,
so one damaged card does not break the list of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from dressage.errors import InvalidArgument


def check_forms(card: Any, place: str) -> None:
    """Check the values of a dataclass against its annotations, and those of the dataclasses in its tuples.

    :param place: how the dataclass is called in an error, such as ``card``.
    :raises InvalidArgument: naming the first value of another type.
    """
    for entry in fields(card):
        value, name = getattr(card, entry.name), f"{place}.{entry.name}"
        if isinstance(value, tuple) and value and all(map(is_dataclass, value)):
            for index, part in enumerate(value):
                check_forms(part, f"{name}[{index}]")
            continue
        expected, fits = _FORMS[str(entry.type)]
        if not fits(value):
            raise InvalidArgument(field=name, value=value, expected=expected)


def _is_text(value: object) -> bool:
    """Return whether a value is a text that can be written out; JSON also accepts half a surrogate pair."""
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_number(value: object) -> bool:
    """Return whether a value is a number; infinity is one, for environments without bounds, a huge integer is not."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _is_option(value: object) -> bool:
    return isinstance(value, bool) or _is_number(value)


def _each(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fits, value))


def _mapping_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(fits, value.values()))


# By annotation, as Python spells it: a type that has no form here is found by the first card that is read.
_FORMS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("a text", _is_text),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number from 0 to 2147483647", _is_whole),
    "float": ("a number", _is_number),
    "float | None": ("a number or null", lambda value: value is None or _is_number(value)),
    "Literal['box', 'discrete']": ("box or discrete", lambda value: value in ("box", "discrete")),
    "tuple[int, ...]": ("a list of whole numbers", _each(_is_whole)),
    "tuple[str, ...]": ("a list of texts", _each(_is_text)),
    "tuple[Field, ...]": ("a list of fields", _each(is_dataclass)),
    "tuple[ObservationComponent, ...]": ("a list of components", _each(is_dataclass)),
    # A tuple with components is checked part by part.
    "tuple[ActionComponent, ...]": ("a list of at least one component", lambda value: False),
    "Mapping[str, float]": ("numbers by name", _mapping_of(_is_number)),
    "Mapping[str, OptionValue]": ("numbers, true or false by name", _mapping_of(_is_option)),
}
