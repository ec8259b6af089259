"""Programs as trees: what parsers return and the engine compiles.

The canonical text of a program consists of tokens of the DSL, separated by spaces::

    program    := DEF run m( statement+ m)
    statement  := ACTION | WHILE c( condition c) w( statement+ w) | IF c( condition c) i( statement+ i)
                | IFELSE c( condition c) i( statement+ i) ELSE e( statement+ e) | REPEAT R=n r( statement+ r)
    condition  := TEST | TEST h( ARGUMENT h) | not c( condition c) | and c( condition c) c( condition c)
                | or c( condition c) c( condition c) | True | False

`parse` is strict: it repairs nothing. Text comes from models and users, so its length, its number of tokens and its nesting
are bounded; the recursion of this package is therefore at most `MAX_DEPTH` blocks deep.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dressage.errors import InvalidArgument

MAX_CHARACTERS = 64 * 1024
"""Longest text of a program."""
MAX_TOKENS = 4096
"""Most tokens of a program."""
MAX_DEPTH = 64
"""Deepest nesting of brackets, ``m(`` included."""
MAX_REPEAT = 10_000
"""Largest count of a REPEAT."""

KEYWORDS = ("WHILE", "IF", "IFELSE", "REPEAT")
RESERVED = frozenset((*KEYWORDS, "DEF", "ELSE", "run", "R"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOKEN = re.compile(r"[^ \t\r\n]+")
_COUNT = re.compile(r"R=(0|[1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Action:
    """Perform an action of the language."""

    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Perform the body ``count`` times."""

    count: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While:
    """Perform the body as long as the condition holds."""

    condition: Condition
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Perform the body if the condition holds."""

    condition: Condition
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class IfElse:
    """Perform the body if the condition holds, otherwise ``orelse``."""

    condition: Condition
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """Perceive the world; ``argument`` is empty where the test takes none."""

    __test__ = False  # not a test case of pytest

    name: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Both conditions hold; the right one is evaluated only if the left one holds."""

    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Or:
    """A condition holds; the right one is evaluated only if the left one does not hold."""

    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Constant:
    """True or False, without a perception."""

    value: bool


Statement = Action | Repeat | While | If | IfElse
Condition = Test | Not | And | Or | Constant


@dataclass(frozen=True, slots=True)
class Program:
    """A program: one block of statements."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Language:
    """Actions and tests of a language; a test may take one argument of a fixed set.

    :param tests: the allowed arguments by test; empty for a test without an argument.
    :raises InvalidArgument: for a name that is not an identifier, is reserved, or is used twice.
    """

    name: str
    actions: tuple[str, ...]
    tests: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        names = [*self.actions, *self.tests]
        for name in [*names, *(argument for arguments in self.tests.values() for argument in arguments)]:
            if not _NAME.fullmatch(name) or name in RESERVED or keyword.iskeyword(name):
                raise InvalidArgument(
                    field=f"language {self.name}",
                    problem="invalid name",
                    value=name,
                    expected="an identifier that is no word of the DSL or of Python",
                )
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise InvalidArgument(
                field=f"language {self.name}",
                problem="a name is used twice",
                value=min(duplicates),
                expected="distinct names",
            )
        if not self.actions:
            raise InvalidArgument(
                field=f"language {self.name}", problem="it has no actions", expected="at least one action"
            )


KAREL = Language(
    "karel",
    ("move", "turnLeft", "turnRight", "pickMarker", "putMarker"),
    {"frontIsClear": (), "leftIsClear": (), "rightIsClear": (), "markersPresent": (), "noMarkersPresent": ()},
)
MINIGRID = Language(
    "minigrid",
    ("left", "right", "forward", "pickup", "drop", "toggle"),
    {
        "front_is_clear": (),
        "front_object_type": ("lava", "door", "ball", "box"),
        "front_object_color": ("red", "blue"),
        "is_carrying_object": (),
    },
)


@dataclass(frozen=True)
class Measures:
    """What the limits of a search are compared with.

    :param tokens: tokens of the canonical text.
    :param height: 1 for the program and 1 for each WHILE, REPEAT, IF or IFELSE on the deepest path.
    :param longest_block: most statements of one block.
    :param nodes: nodes of the reference's tree: the program, each statement, each condition, each REPEAT's count, and n - 1
        sequences for a block of n statements.
    """

    tokens: int
    height: int
    longest_block: int
    nodes: int


def to_text(program: Program) -> str:
    """Return the canonical text of a program."""
    return " ".join(tokens(program))


def tokens(program: Program) -> Iterator[str]:
    """Yield the tokens of a program's canonical text. Iterative, so that any depth is possible."""
    pending: list[str | Statement | Condition] = ["m)", *reversed(program.body), "m(", "run", "DEF"]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        else:
            pending.extend(reversed(_parts(item)))


def _parts(node: Statement | Condition) -> list[str | Statement | Condition]:
    """Return tokens and children of a node in the order of the text."""
    match node:
        case Action(name=name):
            return [name]
        case Repeat(count=count, body=body):
            return ["REPEAT", f"R={count}", "r(", *body, "r)"]
        case While(condition=condition, body=body):
            return ["WHILE", "c(", condition, "c)", "w(", *body, "w)"]
        case If(condition=condition, body=body):
            return ["IF", "c(", condition, "c)", "i(", *body, "i)"]
        case IfElse(condition=condition, body=body, orelse=orelse):
            return ["IFELSE", "c(", condition, "c)", "i(", *body, "i)", "ELSE", "e(", *orelse, "e)"]
        case Test(name=name, argument=argument):
            return [name, "h(", argument, "h)"] if argument else [name]
        case Not(condition=condition):
            return ["not", "c(", condition, "c)"]
        case And(left=left, right=right):
            return ["and", "c(", left, "c)", "c(", right, "c)"]
        case Or(left=left, right=right):
            return ["or", "c(", left, "c)", "c(", right, "c)"]
        case Constant(value=value):
            return ["True" if value else "False"]


def measure(program: Program) -> Measures:
    """Return the counts that the limits of a search refer to."""
    height, longest, nodes = 1, 0, 1
    pending: list[tuple[Statement | Condition, int]] = []

    def add(block: tuple[Statement, ...], level: int) -> None:
        nonlocal longest, nodes
        longest = max(longest, len(block))
        nodes += max(0, len(block) - 1)
        pending.extend((statement, level) for statement in block)

    add(program.body, 1)
    while pending:
        node, level = pending.pop()
        nodes += 1
        match node:
            case Repeat(body=body):
                nodes += 1
                add(body, level + 1)
            case While(condition=condition, body=body) | If(condition=condition, body=body):
                pending.append((condition, level + 1))
                add(body, level + 1)
            case IfElse(condition=condition, body=body, orelse=orelse):
                pending.append((condition, level + 1))
                add(body, level + 1)
                add(orelse, level + 1)
            case Not(condition=condition):
                pending.append((condition, level))
            case And(left=left, right=right) | Or(left=left, right=right):
                pending.extend(((left, level), (right, level)))
        height = max(height, level)
    return Measures(sum(1 for _ in tokens(program)), height, longest, nodes)


def parse(text: str, language: Language) -> Program:
    """Parse the DSL text of a program, without repairs.

    :param text: tokens separated by spaces or line ends.
    :param language: its actions and tests.
    :raises InvalidArgument: for text that is not a program of the language, is too long or too deeply nested; the message
        and ``metadata["token"]`` contain the position of the token, from 1.
    """
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        size = f"{len(text)} characters" if isinstance(text, str) else type(text).__name__
        raise InvalidArgument(
            field="program", problem="too long", value=size, expected=f"text of at most {MAX_CHARACTERS} characters"
        )
    words = _TOKEN.findall(text)
    if len(words) > MAX_TOKENS:
        raise InvalidArgument(
            field="program", problem="too long", value=f"{len(words)} tokens", expected=f"at most {MAX_TOKENS} tokens"
        )
    return _Parser(words, language).program()


class _Parser:
    """Recursive descent; each bracket is one level, at most `MAX_DEPTH`."""

    def __init__(self, words: list[str], language: Language) -> None:
        self._words = words
        self._language = language
        self._next = 0
        self._depth = 0

    def program(self) -> Program:
        self._take("DEF")
        self._take("run")
        body = self._block("m")
        if self._next < len(self._words):
            raise self._error("text after the program", "the end of the program after m)")
        return Program(body)

    def _peek(self) -> str:
        return self._words[self._next] if self._next < len(self._words) else ""

    def _error(self, problem: str, expected: str) -> InvalidArgument:
        at_end = self._next >= len(self._words)
        position = str(self._next + 1)
        value: dict[str, Any] = {} if at_end else {"value": self._peek()}
        return InvalidArgument(
            field="program",
            problem=f"token {position}: {'the text ends' if at_end else problem}",
            **value,
            expected=expected,
            metadata={"token": position},
        )

    def _take(self, word: str) -> None:
        if self._peek() != word:
            raise self._error("unexpected token", word)
        self._next += 1

    def _open(self, kind: str) -> None:
        self._take(f"{kind}(")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._next -= 1
            raise self._error("nested too deeply", f"at most {MAX_DEPTH} nested brackets")

    def _close(self, kind: str) -> None:
        self._take(f"{kind})")
        self._depth -= 1

    def _block(self, kind: str) -> tuple[Statement, ...]:
        self._open(kind)
        statements = [self._statement()]
        closer = f"{kind})"
        while self._peek() != closer:
            statements.append(self._statement(closer))
        self._close(kind)
        return tuple(statements)

    def _statement(self, closer: str = "") -> Statement:
        word = self._peek()
        if word in self._language.actions:
            self._next += 1
            return Action(word)
        if word not in KEYWORDS:
            choices = [*self._language.actions, *KEYWORDS, *([closer] if closer else [])]
            raise self._error("not a statement", f"one of {', '.join(choices)}")
        self._next += 1
        if word == "REPEAT":
            return Repeat(self._count(), self._block("r"))
        condition = self._bracket_condition()
        if word == "WHILE":
            return While(condition, self._block("w"))
        body = self._block("i")
        if word == "IF":
            return If(condition, body)
        self._take("ELSE")
        return IfElse(condition, body, self._block("e"))

    def _count(self) -> int:
        match = _COUNT.fullmatch(self._peek())
        if match is None or int(match[1]) > MAX_REPEAT:
            raise self._error("not a count", f"R=n with n from 0 to {MAX_REPEAT}")
        self._next += 1
        return int(match[1])

    def _bracket_condition(self) -> Condition:
        self._open("c")
        condition = self._condition()
        self._close("c")
        return condition

    def _condition(self) -> Condition:
        word = self._peek()
        if word in self._language.tests:
            self._next += 1
            arguments = self._language.tests[word]
            return Test(word, self._argument(arguments)) if arguments else Test(word)
        if word not in ("not", "and", "or", "True", "False"):
            choices = [*self._language.tests, "not", "and", "or", "True", "False"]
            raise self._error("not a condition", f"one of {', '.join(choices)}")
        self._next += 1
        if word == "not":
            return Not(self._bracket_condition())
        if word in ("True", "False"):
            return Constant(word == "True")
        left = self._bracket_condition()
        right = self._bracket_condition()
        return And(left, right) if word == "and" else Or(left, right)

    def _argument(self, arguments: tuple[str, ...]) -> str:
        self._open("h")
        argument = self._peek()
        if argument not in arguments:
            raise self._error("not an argument of the test", f"one of {', '.join(arguments)}")
        self._next += 1
        self._close("h")
        return argument
