"""Help of all commands, JSON of commands and its schema, and the API's descriptor."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tests.golden.record import Files

_WIDTH = "100"


def invoked(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run a command line in this process: its exit code and what it printed to standard output and error."""
    from dressage.cli.main import invoke

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(arguments)
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def clean_folder(**variables: str) -> Iterator[Path]:
    """An empty current folder, and an environment without the user's settings of this project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRESSAGE_")}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        home = {"DRESSAGE_HOME": f"{folder}/home", "COLUMNS": _WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
        with mock.patch.dict(os.environ, {**kept, **home, **variables}, clear=True):
            yield Path(folder)


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(child, (*path, name))


def record_help() -> Files:
    import typer
    from dressage.cli.main import app

    with clean_folder():
        pages = [
            f"$ dressage {' '.join((*path, '--help'))}\n{invoked([*path, '--help'])[1]}"
            for path in _commands(typer.main.get_command(app))
        ]
    return {"read/help.txt": "\n".join(pages)}


def record_json() -> Files:
    from dressage.api.v1 import session_pb2, session_service_pb2

    from tests.fakes.orchestrator import Background, FakeOrchestrator
    from tests.unit.cli.test_cli_commands import ended

    estimate = session_service_pb2.EstimateSessionResponse(
        env_steps_per_iteration=1_800_000, minutes_per_iteration=1.5, model_calls_per_iteration=0
    )
    estimate.spec.CopyFrom(
        session_pb2.SessionSpec(
            intent="run forward fast",
            environment="environments/HalfCheetah-v5",
            model="template/v1",
            max_iterations=5,
            reward=session_pb2.RewardSpec(seeds=3),
        )
    )
    commands = [
        ["run", "run forward fast", "--env", "HalfCheetah-v5"],
        ["sessions", "list"],
        ["sessions", "show", "s1"],
        ["sessions", "show", "s1", "--lineage"],
        ["runs", "list", "s1"],
        ["artifacts", "list", "sessions/s1"],
        ["check", "reward.py", "--env", "HalfCheetah-v5"],
    ]
    outputs = []
    fake = FakeOrchestrator(estimate=estimate, ended=ended())
    with Background(fake) as running, clean_folder(DRESSAGE_ADDRESS=running.address) as folder:
        (folder / "reward.py").write_text((Path(__file__).parents[2] / "examples/rewards/run_forward.py").read_text())
        for command in commands:
            for form in ([], ["--json"]):
                code, out, err = invoked([*command, *form])
                text = (out + err).replace(running.address, "ADDRESS").replace(str(folder), "FOLDER")
                text = re.sub(r"(per_step\": |vectorised, )[\d.e-]+", r"\1N", text) if command[0] == "check" else text
                outputs.append(f"$ dressage {' '.join([*command, *form])}\n{text}[{code}]\n")
        schema = invoked(["run", "--schema"])[1]
    return {"read/json.txt": "\n".join(outputs), "read/schema.json": _shallow(json.loads(schema))}


def _shallow(document: Any) -> str:
    """Return JSON with a line for each entry down to the third level."""

    def entries(value: Any, depth: int) -> str:
        if depth == 4 or not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False)
        indent = " " * depth
        inner = ",\n".join(f"{indent} {json.dumps(k)}: {entries(v, depth + 1)}" for k, v in value.items())
        return f"{{\n{inner}\n{indent}}}"

    return entries(document, 0) + "\n"


def record_descriptor() -> Files:
    """Record each message's fields with number, type and options (validation rules), each enum's values, and each method."""
    import importlib
    import pkgutil

    import dressage.api.internal.v1
    import dressage.api.v1

    files: Files = {}
    for name, package in (("public", dressage.api.v1), ("internal", dressage.api.internal.v1)):
        described = [
            importlib.import_module(f"{package.__name__}.{module.name}").DESCRIPTOR
            for module in pkgutil.iter_modules(package.__path__)
            if module.name.endswith("_pb2")
        ]
        text = "\n".join(line for file in sorted(described, key=lambda file: file.name) for line in _file(file))
        files[f"read/api_{name}.txt"] = text + "\n"
    return files


def _file(file: Any) -> Iterator[str]:
    yield f"# {file.name}"
    for service in file.services_by_name.values():
        for method in service.methods:
            streams = [
                "stream " if streaming else "" for streaming in (method.client_streaming, method.server_streaming)
            ]
            arguments = f"({streams[0]}{method.input_type.name}) {streams[1]}{method.output_type.name}"
            yield f"rpc {service.name}.{method.name}{arguments}{_options(method)}"
    for enum in file.enum_types_by_name.values():
        yield f"enum {enum.name} " + " ".join(f"{value.name}={value.number}" for value in enum.values)
    for message in file.message_types_by_name.values():
        yield from _message(message, message.name)


def _message(message: Any, name: str) -> Iterator[str]:
    yield f"message {name}{_options(message)}"
    for enum in message.enum_types:
        yield f"  enum {enum.name} " + " ".join(f"{value.name}={value.number}" for value in enum.values)
    for field in message.fields:
        named = field.message_type or field.enum_type
        kind = named.full_name.removeprefix("dressage.") if named else _TYPES[field.type]
        label = "repeated " if field.is_repeated else "optional " if field.has_presence and not named else ""
        oneof = f" <{field.containing_oneof.name}>" if field.containing_oneof else ""
        yield f"  {field.number} {label}{kind} {field.name}{oneof}{_options(field)}"
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from _message(nested, f"{name}.{nested.name}")


_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
}


def _options(described: Any) -> str:
    from google.protobuf import text_format

    text = text_format.MessageToString(described.GetOptions(), as_one_line=True)
    return f" [{text}]" if text else ""
