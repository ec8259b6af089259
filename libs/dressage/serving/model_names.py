"""The form of a model's name: ``provider/model`` as litellm writes it, and never an address.

litellm takes the address of some providers from the model's name (``oobabooga/http://…``, ``huggingface/http://…``), and
removes parts of a name before it looks. A name with an address would thus reach what only the server can. The segments of a
name are never empty, so no ``//`` is left whatever is removed, and none is ``.`` or ``..``.
"""

from __future__ import annotations

import re

EXPECTED = "provider/model as litellm names it, without an address"
_SEGMENT = "[A-Za-z0-9@][A-Za-z0-9._:@+-]*"
_NAME = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*\Z")
_SCHEME = re.compile(r"(?:^|[/:@])[a-z][a-z0-9+.-]*:(?:/|\Z)", re.IGNORECASE)


def is_model_name(name: str) -> bool:
    """Whether a text has the form of a model's name."""
    return _NAME.match(name) is not None and _SCHEME.search(name) is None
