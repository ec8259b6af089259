"""`dressage elicit`, and the file of criteria that goes from it, edited, to `dressage run --criteria`.

The file is JSON, or YAML where its name ends in .yaml or .yml: an object with ``criteria``, each with ``title``,
``description``, ``category`` and ``on``. What is off is kept in the file and not passed on.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import shlex
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import intent_service_pb2, session_pb2
from dressage.cli import output
from dressage.cli.connection import Where, connect
from dressage.cli.specs import read_source

_MOST = 32
_LIMITS = {"title": 200, "description": 2000, "category": 60}
_YAML = (".yaml", ".yml")


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
    if path.suffix.lower() in _YAML:
        text = _yaml(path).safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    else:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.InvalidArgument(
            field="--out", value=str(path), expected=f"a file that can be written ({error.strerror})"
        ) from error


def read_criteria(path: Path) -> list[session_pb2.IntentCriterion]:
    """The criteria of a file that are on.

    :raises InvalidArgument: if it cannot be read, or is not such a file, naming the entry.
    """
    text = read_source(path, field="--criteria")
    try:
        data = _yaml(path).safe_load(text) if path.suffix.lower() in _YAML else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"JSON or YAML ({error})") from error
    except Exception as error:
        # YAML's errors have no base among the standard ones.
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise _bad(path, f"YAML ({' '.join(str(error).split())})") from error
    entries = data.get("criteria") if isinstance(data, dict) else data
    if not isinstance(entries, list) or not 1 <= len(entries) <= _MOST:
        raise _bad(
            path, f"an object with a list 'criteria' of 1 to {_MOST} entries, as `dressage elicit --out` writes it"
        )
    chosen = [criterion for place, entry in enumerate(entries) if (criterion := _criterion(place, entry)) is not None]
    if not chosen:
        raise _bad(path, "at least one criterion that is on")
    return chosen


def _criterion(place: int, entry: Any) -> session_pb2.IntentCriterion | None:
    """An entry's criterion; None if it is off."""
    where = f"--criteria criteria[{place}]"
    if not isinstance(entry, dict) or not str(entry.get("title") or "").strip():
        raise errors.InvalidArgument(field=where, value=entry, expected="an object with a title")
    texts = {}
    for name, most in _LIMITS.items():
        value = entry.get(name) or ""
        if not isinstance(value, str) or len(value) > most:
            seen = f"{len(value)} characters" if isinstance(value, str) else value
            raise errors.InvalidArgument(
                field=f"{where}.{name}", value=seen, expected=f"text of at most {most} characters"
            )
        texts[name] = value
    on = entry.get("on", True)
    if not isinstance(on, bool):
        raise errors.InvalidArgument(field=f"{where}.on", value=on, expected="true or false")
    return session_pb2.IntentCriterion(**texts, default_on=True) if on else None


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() in _YAML:
        _yaml(path)


def _yaml(path: Path) -> Any:
    try:
        return importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        expected = "a name that ends in .json: YAML needs the package pyyaml, which is not installed"
        raise errors.InvalidArgument(field="file", value=str(path), expected=expected) from error


def _bad(path: Path, expected: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(field="--criteria", value=str(path), expected=expected)
