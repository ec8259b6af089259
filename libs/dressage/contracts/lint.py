"""Checks the syntax tree of a generated module against an allow-list."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from dressage.contracts import namespace
from dressage.contracts.failures import Violation, shorten
from dressage.contracts.syntax import bound_names, words

_EXPRESSIONS: tuple[type[ast.AST], ...] = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set, ast.Compare, ast.Call, ast.Constant,
    ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.JoinedStr,
    ast.FormattedValue, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr,
    ast.comprehension, ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.boolop, ast.operator, ast.unaryop,
    ast.cmpop, ast.withitem,
)  # fmt: skip
_STATEMENTS: tuple[type[ast.AST], ...] = (
    ast.Module, ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If,
    ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom, ast.alias,
)  # fmt: skip
_EXCEPTION_STATEMENTS: tuple[type[ast.AST], ...] = (
    ast.Try,
    ast.ExceptHandler,
    ast.Raise,
    ast.Assert,
    ast.With,
)
_ALLOWED: dict[str, tuple[type[ast.AST], ...]] = {
    "vectorised": _EXPRESSIONS + _STATEMENTS,
    "per_step": (*_EXPRESSIONS, *_STATEMENTS, *_EXCEPTION_STATEMENTS, ast.ClassDef, ast.Nonlocal),
    "judge": _EXPRESSIONS + _STATEMENTS + _EXCEPTION_STATEMENTS,
}
_REMEDIES: dict[type[ast.AST], str] = {
    ast.ClassDef: "write plain functions",
    ast.Global: "keep state in memory (vectorised rewards) or on self",
    ast.Nonlocal: "keep state in memory",
    ast.Try: "guard against bad values with np.where and np.maximum instead",
    ast.With: "nothing here needs a context",
    ast.Delete: "let names go out of scope",
    ast.Raise: "return finite values for every state instead",
    ast.Assert: "return finite values for every state instead",
}
_IN_PLACE = frozenset({"sort", "fill", "put", "resize", "partition", "itemset", "setfield", "byteswap"})
_FORBIDDEN_ATTRIBUTES = words(
    """
    tofile dump dumps setflags ctypes format format_map mro gi_frame gi_code cr_frame f_globals f_locals
    f_builtins f_back tb_frame tb_next func_globals func_code co_code
    """
)
_FORBIDDEN_NAMES = words(
    """
    exec eval compile open getattr setattr delattr hasattr globals locals vars dir input breakpoint memoryview
    bytearray id help exit quit type print iter next hash object super
    """
)


MAX_VIOLATIONS = 50
"""Violations of one module that are reported, and looked for: the trusted side lints sources of anyone."""
_MAX_CANDIDATES = 400
"""Names among which a similar one is searched for."""
_MAX_NAME = 60
_MAX_MESSAGE = 1000


_SHARED = words("np math RewardFunction")
_METHODS = words("__init__ __call__ __post_init__ __len__ __repr__")


@dataclass
class Lint:
    """Collects the violations of one module; ``kind`` chooses the allow-list."""

    kind: str
    allowed_names: frozenset[str]
    array_names: frozenset[str]
    fields: dict[str, frozenset[str]]
    """Attributes by variable name, for variables whose attributes are known."""
    owner: str
    violations: list[Violation] = field(default_factory=list)
    _lasting: frozenset[str] = frozenset()

    def report(self, rule: str, node: ast.AST | int, message: str) -> None:
        line = node if isinstance(node, int) else getattr(node, "lineno", 0)
        violation = Violation(rule, line, shorten(message, _MAX_MESSAGE))
        if violation not in self.violations:
            self.violations.append(violation)

    def walk(self, tree: ast.Module) -> None:
        bound = bound_names(tree)
        # Each instance of a per-step reward has a module of its own, so its functions and classes belong to one episode.
        self._lasting = _SHARED if self.kind == "per_step" else _SHARED | _top_level(tree)
        for node in ast.walk(tree):
            if len(self.violations) >= MAX_VIOLATIONS:
                return
            if not isinstance(node, _ALLOWED[self.kind]):
                self._report_statement(node)
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.Attribute():
                    self._attribute(node)
                case ast.Name(ctx=ast.Load()):
                    self._name(node, bound)
                case (
                    ast.Name(id=name)
                    | ast.arg(arg=name)
                    | ast.FunctionDef(name=name)
                    | ast.ClassDef(name=name)
                    | ast.ExceptHandler(name=str(name))
                ) if _dunder(name) and not (self.kind == "per_step" and name in _METHODS):
                    self.report("dunder", node, f"names such as {name} are not allowed; choose another.")
                case ast.Subscript(ctx=ast.Store() | ast.Del()) if self.kind == "vectorised":
                    self.report("in-place", node, _NO_WRITING)
                case ast.Call():
                    self._call(node)

    def _report_statement(self, node: ast.AST) -> None:
        name = _WORDS.get(type(node).__name__, type(node).__name__)
        remedy = next((text for kind, text in _REMEDIES.items() if isinstance(node, kind)), "leave it out")
        self.report("statement", node, f"{name} is not allowed in a {self.owner}; {remedy}.")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            allowed = node.module == "__future__" and names == ["annotations"]
            allowed |= self.kind == "per_step" and names == ["RewardFunction"] and node.names[0].asname is None
            if not allowed:
                self._refuse_import(node, node.module or ".")
            return
        for alias in node.names:
            plain_math = alias.name == "math" and alias.asname is None
            numpy_as_np = self.kind == "per_step" and alias.name == "numpy" and alias.asname == "np"
            if not (plain_math or numpy_as_np):
                self._refuse_import(node, alias.name)

    def _refuse_import(self, node: ast.AST, module: str) -> None:
        if module in ("numpy", "jax.numpy", "torch"):
            remedy = "np is given as an argument; remove the import"
        else:
            remedy = "only `import math` is; use the arguments and np instead"
        self.report("import", node, f"importing {module} is not allowed: {remedy}.")

    def _attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        if _dunder(name) and not _is_super_init(node):
            self.report("dunder", node, f"the attribute {name} is not allowed; use ordinary attributes.")
        elif name in _FORBIDDEN_ATTRIBUTES:
            self.report("forbidden-attribute", node, f"the attribute {name} is not allowed; leave it out.")
        elif self.kind == "vectorised" and name.startswith("_"):
            self.report("dunder", node, f"the attribute {name} is private; use the fields of the card.")
        elif isinstance(node.ctx, ast.Store) and self._outlives_call(node.value):
            self.report("state", node, f"the attribute {name} may not be set here; {_STATE_REMEDIES[self.kind]}.")
        if not isinstance(node.value, ast.Name):
            self._submodule(node)
            return
        variable = node.value.id
        if variable == "np" and name not in self.array_names:
            self.report("np-function", node, namespace.missing_name(name, self.array_names))
        elif variable in self.fields and name not in self.fields[variable]:
            self._unknown_field(node, variable)

    def _outlives_call(self, target: ast.expr) -> bool:
        """Return whether this is a module, a function or another object of the module, whose attributes outlive a call."""
        while isinstance(target, ast.Attribute):
            target = target.value
        return isinstance(target, ast.Name) and target.id in self._lasting

    def _submodule(self, node: ast.Attribute) -> None:
        match node.value:
            case ast.Attribute(value=ast.Name(id="np"), attr=module) if module in namespace.SUBMODULES:
                if node.attr not in namespace.SUBMODULES[module]:
                    text = namespace.missing_name(node.attr, namespace.SUBMODULES[module], prefix=f"np.{module}")
                    self.report("np-function", node, text)

    def _unknown_field(self, node: ast.Attribute, variable: str) -> None:
        names = self.fields[variable]
        if variable == "memory":
            declared = ", ".join(sorted(names)) or "none"
            message = (
                f"memory.{node.attr} is not declared in MEMORY (declared: {declared}); add it with its initial value."
            )
            self.report("memory-field", node, message)
            return
        near = nearest(node.attr, names)
        message = f"{variable} has no field {node.attr}; near matches: {', '.join(near)}. Use a field of the card."
        self.report("unknown-field", node, message)

    def _name(self, node: ast.Name, bound: frozenset[str]) -> None:
        name = node.id
        if _dunder(name):  # also where the module binds it: the builtins have such names
            self.report("dunder", node, f"names such as {name} are not allowed; leave it out.")
        elif name in bound or name in self.allowed_names:
            return
        elif name in _FORBIDDEN_NAMES:
            self.report("forbidden-name", node, f"{name} is not allowed in a {self.owner}; leave it out.")
        else:
            near = close_names(name, bound | self.allowed_names)
            hint = f"; near matches: {', '.join(near)}" if near else ""
            self.report("unknown-name", node, f"the name {name} is not defined{hint}. Define it or use an argument.")

    def _call(self, node: ast.Call) -> None:
        if self.kind != "vectorised":
            return
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.report("in-place", node, _NO_WRITING)
        match node.func:
            case ast.Attribute(value=ast.Name(id="np")):
                return
            case ast.Attribute(attr=name) if name in _IN_PLACE:
                self.report("in-place", node, f".{name}() changes an array in place; {_NO_WRITING}")


# Synonyms in the names of fields.
_SYNONYMS = {
    "speed": "velocity", "vel": "velocity", "rate": "velocity", "pos": "position", "place": "position", "elevation": "height",
    "altitude": "height", "tilt": "pitch", "lean": "pitch", "heading": "yaw", "orientation": "yaw", "force": "contact",
    "forces": "contact", "contacts": "contact", "touch": "touching", "rotation": "turned", "obs": "observation",
    "forward": "x", "vertical": "z", "lateral": "y", "sideways": "y", "up": "z", "angvel": "velocity",
}  # fmt: skip


def nearest(name: str, names: Iterable[str], count: int = 5) -> list[str]:
    """Return the names most similar in spelling or in their words.

    :param names: at least one name.
    """
    name_words = _words(name)

    def similarity(candidate: str) -> float:
        words = _words(candidate)
        shared = len(name_words & words) / len(name_words | words)
        return difflib.SequenceMatcher(a=name.lower(), b=candidate.lower()).ratio() + 2 * shared

    return sorted(names, key=lambda candidate: (-similarity(candidate), candidate))[:count]


def _top_level(tree: ast.Module) -> frozenset[str]:
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    values = [
        node for part in tree.body if not isinstance(part, ast.FunctionDef | ast.ClassDef) for node in ast.walk(part)
    ]
    return frozenset(
        functions | {node.id for node in values if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    )


def close_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three names of similar spelling, among a bounded number of those."""
    if len(name) > _MAX_NAME:
        return []
    alike = sorted(
        (other for other in names if len(other) <= _MAX_NAME), key=lambda other: (other[:1] != name[:1], other)
    )
    return difflib.get_close_matches(name, alike[:_MAX_CANDIDATES], n=3, cutoff=0.6)


def _words(name: str) -> frozenset[str]:
    return frozenset(_SYNONYMS.get(word, word) for word in name.lower().split("_") if word)


_STATE_REMEDIES = {
    "vectorised": "keep state in memory only",
    "per_step": "keep state on self",
    "judge": "keep no state",
}
_NO_WRITING = "arrays may not be written into, so that the reward runs on every backend; use np.where."
_WORDS = {
    "ClassDef": "a class", "Global": "global", "Nonlocal": "nonlocal", "Try": "try", "With": "with", "Raise": "raise",
    "Assert": "assert", "Delete": "del", "AsyncFunctionDef": "async", "Await": "await", "Yield": "yield",
    "YieldFrom": "yield from", "Match": "match", "TypeAlias": "type",
}  # fmt: skip


def _dunder(name: str) -> bool:
    return name.startswith("__")


def _is_super_init(node: ast.Attribute) -> bool:
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), attr="__init__"):
            return True
    return False
