"""Options that may be given for single roles: ``NAME`` for the session, ``ROLE=NAME`` for a role or a group of roles."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dressage import errors
from dressage.api.v1 import session_pb2 as pb

_OF_ROLE = re.compile(r"([a-z][a-z_]{0,39})=(.*)", re.DOTALL)
_EXPECTED = "one value for the session, and ROLE=VALUE at most once for each role"


def by_role(option: str, values: str | Sequence[str]) -> dict[str, str]:
    """Return an option's values by role; the session's value has the role ``""``.

    :param option: its name in errors.
    :raises InvalidArgument: if a role has two values, or an empty one.
    """
    chosen: dict[str, str] = {}
    for text in [values] if isinstance(values, str) else values:
        match = _OF_ROLE.fullmatch(text)
        role, value = (match[1], match[2]) if match else ("", text)
        if role in chosen or (role and not value):
            problem = "given more than once" if role in chosen else "empty"
            raise errors.InvalidArgument(field=option, problem=problem, value=text, expected=_EXPECTED)
        if value:
            chosen[role] = value
    return chosen


def set_roles(
    spec: pb.SessionSpec,
    *,
    model: str | Sequence[str],
    thinking: str | Sequence[str] = (),
    api_base: str | Sequence[str] = (),
) -> None:
    """Set the models of a spec, and their efforts and endpoints. An endpoint without a role is the server's setting.

    :raises InvalidArgument: see `by_role`.
    """
    for field, option, values in (
        ("model", "--model", model),
        ("thinking", "--thinking", thinking),
        ("api_base", "--api-base", api_base),
    ):
        for role, value in by_role(option, values).items():
            if role:
                setattr(spec.roles[role], field, value)
            elif field == "model":
                spec.model = value
            elif field == "thinking":
                spec.thinking = value
