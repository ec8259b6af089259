"""Specs from options as the command line takes them."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import session_pb2
from dressage.cli.options import RunOptions
from dressage.sdk.argument_names import option_names
from dressage.sdk.specs import make_spec


def spec_of(base: session_pb2.SessionSpec | None = None, **options: Any) -> session_pb2.SessionSpec:
    """Return the spec of these options of `dressage run`; errors name the options."""
    with option_names():
        return make_spec(RunOptions.parse(options), base)
