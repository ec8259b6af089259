"""`import dressage` is light, names everything it offers, and is typed."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import dressage.contracts
import dressage.sandbox
import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ("jax", "mujoco", "torch", "grpc", "gymnasium", "matplotlib", "numpy", "litellm", "google.protobuf")


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)


def test_importing_dressage_imports_no_heavy_module():
    done = run(f"""
        import sys, dressage
        assert {{"run", "train", "check", "evaluate", "load", "make_env", "result", "__version__"}} <= set(dir(dressage))
        print([name for name in {HEAVY!r} if name in sys.modules])
    """)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_names_for_rewards_and_policies_import_no_service():
    done = run("""
        import sys, dressage
        dressage.load, dressage.check, dressage.run, dressage.evaluate
        heavy = ("jax", "torch", "litellm", "dbos", "matplotlib", "dressage_orchestrator", "dressage_llm_agent")
        print([name for name in heavy if name in sys.modules])
    """)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_every_name_resolves_and_an_unknown_one_is_refused():
    for name in dressage.__all__:
        assert getattr(dressage, name) is not None, name
    assert dressage.errors.NotFound.__module__ == "dressage.errors"
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        dressage.runn  # noqa: B018


def test_a_policy_process_imports_no_environments():
    done = run("""
        import sys, dressage.contracts.policy_process
        unused = ("dressage.envs", "dressage.contracts.check", "dressage.sandbox.process", "subprocess")
        print([name for name in unused if name in sys.modules])
    """)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("package", [dressage.contracts, dressage.sandbox])
def test_lazy_packages_have_the_names_that_type_checkers_see(package):
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == package._MODULES
    for name, module in imported.items():
        assert getattr(package, name) is getattr(sys.modules[module], name), name
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        package.absent  # noqa: B018


def test_type_checkers_see_the_names_that_are_imported_lazily():
    tree = ast.parse((ROOT / "libs/dressage/__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported.pop("errors") == "dressage"
    assert imported == dressage._MODULES
