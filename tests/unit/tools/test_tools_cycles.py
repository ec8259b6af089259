"""No module imports itself through others, imports inside functions and for type checkers included."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = [ROOT / "libs" / "dressage", *sorted(ROOT.glob("services/*/dressage_*"))]


def modules(packages: Iterable[Path]) -> dict[str, Path]:
    """Paths of the packages' modules by name; the generated API is left out."""
    named = {}
    for package in packages:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            if parts[:2] != ("dressage", "api"):
                named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imported(source: str, known: Iterable[str]) -> Iterator[str]:
    """Modules among the known ones that a source imports anywhere."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute"
            for name in node.names:
                module = f"{node.module}.{name.name}"
                yield module if module in known else node.module


def cycle(packages: Iterable[Path]) -> list[str]:
    """One cycle of imports, or none."""
    named = modules(packages)
    graph = {
        module: {other for other in imported(path.read_text("utf-8"), named) if other in named and other != module}
        for module, path in named.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    assert len(modules(PACKAGES)) > 300
    assert cycle(PACKAGES) == []


def test_imports_in_functions_and_for_type_checkers_count(tmp_path: Path) -> None:
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "door.py").write_text("def open():\n    from house import key\n    return key\n")
    (package / "key.py").write_text("import house\n")
    assert cycle([package]) == []
    (package / "key.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.door import open\n"
    )
    assert set(cycle([package])) == {"house.door", "house.key"}
