"""`dressage elicit`, and the file of criteria that goes from it, edited, to `dressage run --criteria`.

The file is JSON, or YAML where its name ends in .yaml or .yml: an object with ``criteria``, each with ``title``,
``description``, ``category`` and ``on``. What is off is kept in the file and not passed on.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import intent_service_pb2
from dressage.cli import output
from dressage.local.connection import ServerOptions as Where
from dressage.local.connection import connect
from dressage.sdk.criteria import YAML, yaml_module


def elicit(intent: str, environment: str, where: Where, *, model: str, out: Path | None, as_json: bool) -> None:
    """Asks for criteria and prints them; writes them to a file if one is named.

    :raises InvalidArgument: for an empty intent, or a file that cannot be written.
    """
    if out is not None:
        _check_suffix(out)
    answer = asyncio.run(_ask(intent, environment, where, model))
    document = to_document(intent, environment, answer)
    if out is not None:
        write_criteria(out, document)
    if as_json:
        output.print_json(document | {"cost": output.message_dict(answer.cost)})
        return
    rows = [("on" if c.default_on else "off", c.title, c.category, c.description) for c in answer.criteria]
    output.print_table(("", "criterion", "category", "what is measured"), rows)
    for question in answer.questions:
        print(f"? {question}")
    if answer.questions:
        print("The intent leaves this open; say it in the intent, or edit the criteria.")
    if out is not None:
        quoted = shlex.quote(intent)
        print(f"{out}: edit it, then  dressage run {quoted} --env {environment} --criteria {shlex.quote(str(out))}")


async def _ask(intent: str, environment: str, where: Where, model: str) -> intent_service_pb2.ElicitResponse:
    async with connect(where, start="full") as connection:
        return await connection.client.elicit(intent, environment, model=model)


def to_document(intent: str, environment: str, answer: intent_service_pb2.ElicitResponse) -> dict[str, Any]:
    """The criteria as the file holds them."""
    criteria = [
        {"title": c.title, "description": c.description, "category": c.category, "on": c.default_on}
        for c in answer.criteria
    ]
    return {
        "intent": intent,
        "environment": environment,
        "criteria": criteria,
        "questions": list(answer.questions),
    }


def write_criteria(path: Path, document: dict[str, Any]) -> None:
    """Writes the file.

    :raises InvalidArgument: if it cannot be written.
    """
    if path.suffix.lower() in YAML:
        text = yaml_module(path).safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    else:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.InvalidArgument(
            field="--out", value=str(path), expected=f"a file that can be written ({error.strerror})"
        ) from error


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() in YAML:
        yaml_module(path)
