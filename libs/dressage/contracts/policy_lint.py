"""Static checks of code policies and feedback classes: allow-lists over the syntax tree. Lint, not security.

A policy is ordinary Python, so that classes, exceptions and generators are allowed. What the lint refuses would fail in the
sandbox or would not work under stock Gymnasium; the messages say what to write instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dressage.contracts.execute import ALLOWED_BUILTINS, CLASS_BUILTINS, EXCEPTIONS
from dressage.contracts.failures import Violation, shorten
from dressage.contracts.lint import MAX_VIOLATIONS, close_names
from dressage.contracts.syntax import bound_names, parse, words

ALLOWED_MODULES = words(
    """
    __future__ abc bisect cmath collections copy dataclasses decimal enum fractions functools heapq itertools math numbers
    numpy operator queue random re statistics string typing
    """
)
"""Modules that a policy may import, with their submodules."""
POLICY_BUILTINS = (
    ALLOWED_BUILTINS
    | CLASS_BUILTINS
    | EXCEPTIONS
    | words(
        """
        print iter next hash id type getattr setattr hasattr delattr repr format ord chr bytes bytearray complex hex bin oct
        ascii issubclass NotImplemented Ellipsis LookupError AttributeError NameError RuntimeError NotImplementedError
        OverflowError FloatingPointError RecursionError StopIteration BufferError ImportError UnboundLocalError
        """
    )
)
_FORBIDDEN_NAMES = words(
    """
    exec eval compile open globals locals vars dir input breakpoint memoryview help exit quit __import__ __builtins__
    __loader__ __spec__
    """
)
_FORBIDDEN_ATTRIBUTES = words(
    """
    tofile dump dumps ctypes mro gi_frame gi_code cr_frame f_globals f_locals f_builtins f_back tb_frame tb_next func_globals
    func_code co_code
    """
)
_NUMPY_REFUSED = words(
    """
    load save savez savez_compressed loadtxt savetxt genfromtxt fromfile fromregex memmap DataSource ctypeslib f2py testing
    lib distutils core _core show_config
    """
)
_ALLOWED_DUNDERS = words(
    "__init__ __post_init__ __class__ __name__ __eq__ __lt__ __hash__ __len__ __call__ __new__ __slots__"
)
_REFUSED_STATEMENTS = {
    ast.AsyncFunctionDef: "async def",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Await: "await",
}


def lint_policy(source: str) -> list[Violation]:
    """Check the source of a policy without running it.

    :returns: violations in order of their lines, at most 50; empty when there is none.
    """
    return _lint(source, "policy", "Policy", {"act": ("self", "obs"), "reset": ("self",)})


def lint_feedback(source: str) -> list[Violation]:
    """Check the source of a feedback class without running it; as `lint_policy`."""
    return _lint(source, "feedback", "Feedback", {"summarize_trajectory": ("self", "observations")})


def _lint(source: str, owner: str, name: str, methods: dict[str, tuple[str, ...]]) -> list[Violation]:
    tree = parse(source, owner=owner)
    if isinstance(tree, Violation):
        return [tree]
    lint = _PolicyLint(owner, _names(tree))
    for node in ast.walk(tree):
        if len(lint.violations) >= MAX_VIOLATIONS:
            break
        lint.visit(node)
    lint.check_class(tree, name, methods)
    return sorted(lint.violations, key=lambda violation: (violation.line, violation.rule))[:MAX_VIOLATIONS]


def _names(tree: ast.Module) -> frozenset[str]:
    """Return every bound name, and the builtins."""

    def match_names() -> Iterator[str]:
        for node in ast.walk(tree):
            match node:
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                    yield name

    return bound_names(tree) | POLICY_BUILTINS | frozenset(match_names()) | {"__name__"}


@dataclass
class _PolicyLint:
    owner: str
    names: frozenset[str]
    violations: list[Violation] = field(default_factory=list)

    def report(self, rule: str, node: ast.AST | None, message: str) -> None:
        violation = Violation(rule, getattr(node, "lineno", 0), shorten(message, 1000))
        if violation not in self.violations:
            self.violations.append(violation)

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    self._module(node, alias.name)
            case ast.ImportFrom():
                self._from(node)
            case ast.Attribute():
                self._attribute(node)
            case ast.Name(ctx=ast.Load()):
                self._name(node)
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                text = f"{_REFUSED_STATEMENTS[type(node)]} is not allowed in a {self.owner}; use ordinary functions."
                self.report("statement", node, text)

    def _module(self, node: ast.AST, name: str) -> None:
        root, *rest = name.split(".")
        if root not in ALLOWED_MODULES:
            allowed = ", ".join(sorted(ALLOWED_MODULES - {"__future__"}))
            text = f"importing {name} is not allowed; write it without, or use one of {allowed}."
            self.report("import", node, text)
        elif root == "numpy" and rest and rest[0] in _NUMPY_REFUSED:
            self.report("import", node, f"importing {name} is not allowed; use array functions of numpy.")

    def _from(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            self.report("import", node, "relative imports are not allowed; write everything into one module.")
            return
        self._module(node, node.module)
        for alias in node.names:
            if alias.name == "*":
                self.report("import", node, "import * is not allowed; name what is imported.")
            elif node.module == "numpy" and alias.name in _NUMPY_REFUSED:
                self._numpy(node, alias.name)

    def _numpy(self, node: ast.AST, name: str) -> None:
        text = f"numpy.{name} is not allowed: a {self.owner} has no files; keep data in the source."
        self.report("np-function", node, text)

    def _attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        if name.startswith("__") and name not in _ALLOWED_DUNDERS:
            self.report("dunder", node, f"the attribute {name} is not allowed; use ordinary attributes.")
        elif name in _FORBIDDEN_ATTRIBUTES:
            self.report("forbidden-attribute", node, f"the attribute {name} is not allowed; leave it out.")
        elif isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy") and name in _NUMPY_REFUSED:
            self._numpy(node, name)

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if name in _FORBIDDEN_NAMES:
            self.report("forbidden-name", node, f"{name} is not allowed in a {self.owner}; leave it out.")
        elif name not in self.names:
            near = close_names(name, self.names)
            if name in ("np", "math", "random"):
                hint = f". Add `import {'numpy as np' if name == 'np' else name}`"
            else:
                hint = f"; near matches: {', '.join(near)}. Define it" if near else ". Define it"
            self.report("unknown-name", node, f"the name {name} is not defined{hint}.")

    def check_class(self, tree: ast.Module, name: str, methods: dict[str, tuple[str, ...]]) -> None:
        """Check that the class is there, with its methods."""
        form = "; ".join(f"def {method}({', '.join(names)})" for method, names in methods.items())
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        if not classes:
            self.report(
                f"no-{self.owner}", None, f"no class {name} is defined at module level; write class {name}: {form}."
            )
            return
        own = {node.name: node for node in classes[-1].body if isinstance(node, ast.FunctionDef)}
        inherits = bool(classes[-1].bases)
        for method, names in methods.items():
            if method in own:
                self._signature(own[method], names)
            elif not inherits:
                text = f"{name} has no method {method}; define {method}({', '.join(names)})."
                self.report("signature", classes[-1], text)
        if "__init__" in own:
            self._signature(own["__init__"], ("self",))

    def _signature(self, function: ast.FunctionDef, names: tuple[str, ...]) -> None:
        arguments = function.args
        positional = len(arguments.posonlyargs) + len(arguments.args)
        required = positional - len(arguments.defaults)
        missing = sum(default is None for default in arguments.kw_defaults)
        enough = positional >= len(names) or arguments.vararg is not None
        if required > len(names) or missing or not enough or _is_static(function):
            text = f"{function.name} has other parameters; define it as {function.name}({', '.join(names)})."
            self.report("signature", function, text)


def _is_static(function: ast.FunctionDef) -> bool:
    names = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    return bool(names & {"staticmethod", "classmethod", "property"})
