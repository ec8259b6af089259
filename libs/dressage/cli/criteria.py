"""`dressage elicit`: asks for criteria and writes the file that `dressage run --criteria` reads (`dressage.sdk.files`)."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import intent_service_pb2
from dressage.cli import output
from dressage.local.connection import ServerOptions, connect
from dressage.sdk.files import YAML, yaml_module


def elicit(
    intent: str, environment: str, server: ServerOptions, *, model: str, out: Path | None, as_json: bool
) -> None:
    """Request criteria, print them, and write them to ``out`` if it is given.

    :raises InvalidArgument: for an empty intent, or a file that cannot be written.
    """
    if out is not None:
        _check_suffix(out)
    response, flags = asyncio.run(_request(intent, environment, server, model))
    document = to_document(intent, environment, response)
    if out is not None:
        write_criteria(out, document)
    if as_json:
        output.print_json(document | {"cost": output.message_dict(response.cost)})
        return
    rows = [("on" if c.default_on else "off", c.title, c.category, c.description) for c in response.criteria]
    output.print_table(("", "criterion", "category", "measurement"), rows)
    for question in response.questions:
        print(f"? {question}")
    if response.questions:
        print("The intent leaves these questions open. Answer them in the intent, or edit the criteria.")
    if out is not None:
        command = f"dressage run {shlex.quote(intent)} --env {environment} --criteria {shlex.quote(str(out))}{flags}"
        print(f"wrote {out}; edit it, then run:  {command}")


async def _request(
    intent: str, environment: str, server: ServerOptions, model: str
) -> tuple[intent_service_pb2.ElicitResponse, str]:
    """Return the criteria, and the options with which another command uses the same server and model."""
    async with connect(server, start="own") as connection:
        response = await connection.client.elicit(intent, environment, model=model)
        flags = f" --model {shlex.quote(model)}" if model else ""
        if server.api_base:
            flags += f" --api-base {shlex.quote(server.api_base)}"
        return response, flags + connection.flags


def to_document(intent: str, environment: str, response: intent_service_pb2.ElicitResponse) -> dict[str, Any]:
    """Return the contents of the file."""
    criteria = [
        {"title": c.title, "description": c.description, "category": c.category, "on": c.default_on}
        for c in response.criteria
    ]
    return {
        "intent": intent,
        "environment": environment,
        "criteria": criteria,
        "questions": list(response.questions),
    }


def write_criteria(path: Path, document: dict[str, Any]) -> None:
    """Write the file.

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
            field="--out",
            problem=f"cannot be written: {error.strerror}",
            value=str(path),
            expected="a path that can be written to",
        ) from error


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() in YAML:
        yaml_module(path)
