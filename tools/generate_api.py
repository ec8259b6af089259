"""Generate `dressage.api` from `protos/`, with the oldest tool versions that the ranges in pyproject.toml allow.

Run it with ``make proto``. ``--check`` only checks whether the committed stubs are current.

protoc needs ``buf/validate/validate.proto``, which no package ships as text: its descriptor is taken from the installed
``protovalidate`` and handed over in a descriptor set. Generated modules import each other by package path
(``from dressage.v1 import …``), so imports are rewritten to live below ``dressage.api``.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import generate_arguments  # type: ignore[import-not-found]
from google.protobuf import descriptor_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
API = ROOT / "libs" / "dressage" / "api"
TOOLS = ["grpcio-tools==1.80.0", "mypy-protobuf==3.7.0", "setuptools<81"]


def included_descriptors() -> bytes:
    """Descriptors of the files that ours import, serialised as a FileDescriptorSet."""
    from protovalidate._gen.buf.validate import validate_pb

    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.add().ParseFromString(validate_pb._DESC.proto.to_binary())
    return files.SerializeToString()


def protoc(descriptors: Path, outputs: list[str]) -> None:
    """Runs protoc in an environment of its own, pinned to the oldest supported versions."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    common = [f"--descriptor_set_in={descriptors}", f"-I{PROTOS}"]
    uv = str(ROOT / "tools" / "uv")
    tool = [uv, "run", "--isolated", "--no-project", "--python", f"{sys.version_info.major}.{sys.version_info.minor}"]
    for requirement in TOOLS:
        tool += ["--with", requirement]
    command = [*tool, "python", "-m", "grpc_tools.protoc", *common, *outputs]
    subprocess.run([*command, "buf/validate/validate.proto", *sources], check=True, stderr=subprocess.DEVNULL)


def compile_image(image: Path) -> None:
    """Writes the compiled protos, imports and comments included: what `buf lint` and `buf breaking` read."""
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = Path(scratch) / "included.binpb"
        descriptors.write_bytes(included_descriptors())
        image.parent.mkdir(parents=True, exist_ok=True)
        protoc(descriptors, ["--include_imports", "--include_source_info", f"--descriptor_set_out={image}"])


def relocate(folder: Path) -> None:
    """Rewrites absolute imports of our packages to `dressage.api.…` and adds the packages' `__init__.py`."""
    pattern = re.compile(r"\b(from|import) (dressage|buf)\.(v1|internal\.v1|validate)\b")
    for path in folder.rglob("*.py*"):
        text = pattern.sub(lambda m: f"{m[1]} dressage.api.{'buf.' if m[2] == 'buf' else ''}{m[3]}", path.read_text())
        text = re.sub(
            r"\b(?<!api\.)(dressage|buf)\.(v1|internal\.v1|validate)\.(\w+_pb2)\b",
            lambda m: f"dressage.api.{'buf.' if m[1] == 'buf' else ''}{m[2]}.{m[3]}",
            text,
        )
        path.write_text(text)


def generate(target: Path) -> None:
    """Writes the whole of `dressage.api` below ``target``."""
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = Path(scratch) / "included.binpb"
        descriptors.write_bytes(included_descriptors())
        out = Path(scratch) / "out"
        out.mkdir()
        image = Path(scratch) / "image.binpb"
        outputs = [f"--python_out={out}", f"--mypy_out={out}", f"--grpc_python_out={out}"]
        protoc(descriptors, [*outputs, "--include_imports", f"--descriptor_set_out={image}"])
        relocate(out)
        places = {"dressage/v1": "v1", "dressage/internal/v1": "internal/v1", "buf/validate": "buf/validate"}
        for source, place in places.items():
            folder = target / place
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted((out / source).glob("*.py*")):
                # protoc's plugin writes an empty service module for protos without services.
                if not path.name.endswith("_pb2_grpc.py") or "_service_" in path.name:
                    (folder / path.name).write_bytes(path.read_bytes())
        for package in ("", "v1", "internal", "internal/v1", "buf", "buf/validate"):
            (target / package / "__init__.py").write_text(
                '"""Generated from protos/ by `make proto`; do not edit."""\n'
            )
        generate_arguments.write(image, target / "arguments.py")


def main() -> int:
    """Generates, or with ``--check`` compares; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the committed stubs are not current")
    parser.add_argument("--image", type=Path, help="only write the compiled protos to this file")
    arguments = parser.parse_args()
    if arguments.image:
        compile_image(arguments.image)
        return 0
    if not arguments.check:
        generate(API)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        names = sorted(str(path.relative_to(fresh)) for path in fresh.rglob("*.py*"))
        _, differing, missing = filecmp.cmpfiles(fresh, API, names, shallow=False)
        for name in [*differing, *missing]:
            print(f"libs/dressage/api/{name} is not current; run `make proto` and commit the result", file=sys.stderr)
        return 1 if differing or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
