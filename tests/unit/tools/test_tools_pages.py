"""The generators of docs/performance.md and docs/api.md."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[3]


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


bench = load("bench")
api_reference = load("api_reference")


def result(**changes: Any) -> dict[str, Any]:
    whole = {
        "name": "a",
        "what": "Speed of a",
        "unit": "steps/s",
        "ours": 30_000,
        "peer": 1_000,
        "ratio": 30.0,
        "limit": 60_000,
    }
    whole |= {"share_of_limit": 0.5, "repeats": 3, "spread": {"ours": [29_000, 31_000]}, "cores": 2}
    whole |= {"versions": {"python": "3.11"}, "notes": "Notes.", "machine": "CPU, 2 cores", "date": "2026-01-02"}
    return whole | changes


def test_the_table_replaces_the_block_between_the_markers() -> None:
    page = f"before\n{bench.BEGIN}\n{bench.END}\nafter\n"
    once = bench.with_table(page, {"a": result()})
    assert "| Speed of a | steps/s | 30,000 | 1,000 | 30 | 50% |" in once
    assert "Machine: CPU, 2 cores. Dates: 2026-01-02 to 2026-01-02." in once
    assert once.startswith("before\n") and once.endswith("\nafter\n")
    assert bench.with_table(once, {"a": result()}) == once


def test_a_result_with_rows_has_each_of_them_in_the_table() -> None:
    row = {"unit": "s", "ours": 1.5, "peer": None, "ratio": None, "share_of_limit": None}
    listed = result(rows=[{"what": "first", **row}, {"what": "second", **row}])
    lines = bench.table([listed])
    assert "| first | s | 1.5 | – | – | – |" in lines and "| second | s | 1.5 | – | – | – |" in lines
    assert not any("Speed of a" in line for line in lines)
    with pytest.raises(SystemExit, match=r"a\.py: a row lacks what"):
        bench.check(result(rows=[row]), Path("a.py"))


def test_results_are_stored_and_read_back(tmp_path: Path) -> None:
    bench.store(tmp_path, result())
    bench.store(tmp_path, result(name="b", ours=1))
    assert bench.load_results(tmp_path) == {"a": result(), "b": result(name="b", ours=1)}


def test_the_page_has_the_table_of_the_stored_results() -> None:
    text = bench.PAGE.read_text(encoding="utf-8")
    results = bench.load_results(bench.RESULTS)
    for name, row in results.items():
        bench.check(row, Path(f"{name}.py"))
    assert bench.with_table(text, results) == text


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(SystemExit, match="lacks the markers"):
        bench.with_table("text", {})


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"ours": "fast"}, "ours is 'fast'"), ({"name": "b"}, "name is 'b'"), ({"spread": None}, "spread is None")],
)
def test_a_malformed_result_is_refused_by_its_key(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SystemExit, match=says):
        bench.check(result(**changes), Path("a.py"))


def test_every_benchmark_is_named_as_its_file() -> None:
    files = list((ROOT / "benchmarks").glob("[!_]*.py"))
    assert files
    for path in files:
        assert f'"name": "{path.stem}"' in path.read_text(encoding="utf-8")


def test_the_reference_shows_types_comments_and_methods() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="dressage/v1/x.proto", package="dressage.v1", syntax="proto3")
    message = file.message_type.add(name="Thing")
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    entry.field.add(name="value", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    counts = message.field.add(name="counts", number=1, type="TYPE_MESSAGE", label="LABEL_REPEATED")
    counts.type_name = ".dressage.v1.Thing.CountsEntry"
    service = file.service.add(name="ThingService")
    service.method.add(
        name="Watch", input_type=".dressage.v1.Thing", output_type=".dressage.v1.Thing", server_streaming=True
    )
    file.source_code_info.location.add(path=[4, 0, 2, 0], leading_comments=" How many\n by name.\n")
    page = api_reference.page(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    assert "| `counts` | `map<string, int32>` | How many by name. |" in page
    assert "| `Watch` | Thing | stream Thing |" in page
    assert "CountsEntry" not in page


def test_the_committed_reference_names_every_public_method() -> None:
    from dressage.api.v1 import session_service_pb2

    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for method in session_service_pb2.DESCRIPTOR.services_by_name["SessionService"].methods:
        assert f"| `{method.name}` | {method.input_type.name} |" in page
