"""Reads DSL text as language models write it, and reports each repair.

Two steps: `read_dsl` parses text with mistakes of form into a tree, and `normalise` replaces what a search cannot represent
(counts above 19, ``WHILE True``). What no listed repair covers is an error: a guess would be another program.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from dressage.errors import InvalidArgument
from dressage.programs.syntax import (
    KEYWORDS,
    MAX_DEPTH,
    MAX_TOKENS,
    Action,
    And,
    Condition,
    Constant,
    If,
    IfElse,
    Language,
    Not,
    Or,
    Program,
    Repeat,
    Statement,
    Test,
    While,
)  # fmt: skip

LARGEST_COUNT = 19
"""Largest count of a REPEAT that the search can represent."""
OPPOSITES = {"markersPresent": "noMarkersPresent", "noMarkersPresent": "markersPresent"}

DROPPED_CALLS = "dropped () after names"
DROPPED_MARKS = "dropped quotes and semicolons"
CUT = "cut to the first complete program"
FIXED_CLOSERS = "fixed closing brackets"
FIXED_OPENERS = "completed opening brackets"
ADDED_CLOSERS = "added missing closing brackets"
ADDED_BRACKETS = "added missing c( c)"
ADDED_ARGUMENT = "added missing h( h)"
TO_IFELSE = "changed IF with ELSE to IFELSE"
TO_IF = "changed IFELSE without ELSE to IF"
CLAMPED = f"clamped counts to 0..{LARGEST_COUNT}"
OPPOSITE_TEST = "replaced not by the opposite test"
FOLDED = "folded not True and not False"
LOOP_TRUE = f"changed WHILE True to REPEAT R={LARGEST_COUNT}"
LOOP_FALSE = "changed WHILE False to REPEAT R=0"

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<mark>[;"'`“”‘’]+)
    |(?P<count>R\s{0,3}=\s{0,3}-?[0-9]{1,9})
    |(?P<opener>[cehimrw]\s{0,3}\((?!\s*\)))|(?P<closer>[cehimrw]\s{0,3}\)|\))|(?P<bare>\((?!\s{0,3}\)))
    |(?P<call>[A-Za-z_]\w{0,63}\s{0,3}\(\s{0,3}\))|(?P<name>[A-Za-z_]\w{0,63})|(?P<other>.)""",
    re.VERBOSE | re.ASCII,
)


def read_dsl(text: str, language: Language) -> tuple[Program, tuple[str, ...]]:
    """Parse the first complete program of a text, with repairs of its form.

    :param text: at most `MAX_TOKENS` tokens are read.
    :returns: the program, and the repairs that were necessary, each once.
    :raises InvalidArgument: if the text contains no program that the listed repairs make valid; ``metadata["token"]`` is the
        position of the token after DEF, from 1 for DEF itself.
    """
    start = re.search(r"\bDEF\b", text)
    if start is None:
        raise InvalidArgument(
            field="program", problem="there is no DEF", expected="DEF run m( … m)", metadata={"token": "1"}
        )
    reader = _Reader(text[start.start() :], language)
    program = reader.program()
    return program, tuple(reader.repairs)


def normalise(program: Program, language: Language) -> tuple[Program, tuple[str, ...]]:
    """Replace what the search cannot represent or states with one token less.

    :returns: the program, and the changes, each once.
    """
    normaliser = _Normaliser(language)
    return Program(normaliser.block(program.body)), tuple(normaliser.changes)


class _Normaliser:
    def __init__(self, language: Language) -> None:
        self.changes: dict[str, None] = {}
        both = all(name in language.tests for name in OPPOSITES)
        self._opposites = OPPOSITES if both else {}

    def block(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(self._statement(statement) for statement in statements)

    def _statement(self, statement: Statement) -> Statement:
        match statement:
            case Action():
                return statement
            case Repeat(count=count, body=body):
                return Repeat(self._clamp(count), self.block(body))
            case While(condition=raw, body=body):
                condition = self._condition(raw)
                if isinstance(condition, Constant):
                    self.changes[LOOP_TRUE if condition.value else LOOP_FALSE] = None
                    return Repeat(LARGEST_COUNT if condition.value else 0, self.block(body))
                return While(condition, self.block(body))
            case If(condition=raw, body=body):
                return If(self._condition(raw), self.block(body))
            case IfElse(condition=raw, body=body, orelse=orelse):
                return IfElse(self._condition(raw), self.block(body), self.block(orelse))

    def _clamp(self, count: int) -> int:
        if not 0 <= count <= LARGEST_COUNT:
            self.changes[CLAMPED] = None
        return min(max(count, 0), LARGEST_COUNT)

    def _condition(self, condition: Condition) -> Condition:
        match condition:
            case Not(condition=raw):
                return self._not(self._condition(raw))
            case And(left=left, right=right):
                return And(self._condition(left), self._condition(right))
            case Or(left=left, right=right):
                return Or(self._condition(left), self._condition(right))
            case _:
                return condition

    def _not(self, inner: Condition) -> Condition:
        if isinstance(inner, Constant):
            self.changes[FOLDED] = None
            return Constant(not inner.value)
        if isinstance(inner, Test) and inner.name in self._opposites:
            self.changes[OPPOSITE_TEST] = None
            return Test(self._opposites[inner.name])
        return Not(inner)


class _Reader:
    """Recursive descent over tokens (kind, text); the brackets on the way are the bracket stack."""

    def __init__(self, text: str, language: Language) -> None:
        self.repairs: dict[str, None] = {}
        self._language = language
        self._tokens = self._lex(text)
        self._next = 0
        self._depth = 0
        self._conditions = 0
        """Open c( brackets."""

    def _lex(self, text: str) -> list[tuple[str, str, bool]]:
        """Return (kind, text, marks): whether quotes or semicolons were dropped before the token."""
        tokens: list[tuple[str, str, bool]] = []
        marks = False
        for match in _TOKEN.finditer(text):
            kind = str(match.lastgroup)
            if kind == "space":
                continue
            if kind == "mark":
                marks = True
                continue
            word = match.group() if kind == "other" else re.sub(r"\s", "", match.group())
            tokens.append((kind, word, marks))
            marks = False
            if kind == "other" or len(tokens) > MAX_TOKENS:
                break
        return tokens

    # Tokens

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        position = self._next + ahead
        return self._tokens[position][:2] if position < len(self._tokens) else ("end", "")

    def _take(self) -> str:
        """Return the token's text, a name without its ()."""
        kind, word, marks = self._tokens[self._next]
        self._next += 1
        if marks:
            self.repairs[DROPPED_MARKS] = None
        if kind == "call":
            self.repairs[DROPPED_CALLS] = None
            return word[:-2]
        return word

    def _name(self) -> str:
        """The name that comes next, without its (); empty if another token does."""
        kind, word = self._peek()
        return word.removesuffix("()") if kind in ("name", "call") else ""

    def _fail(self, expected: str) -> NoReturn:
        kind, word = self._peek()
        position = str(self._next + 1)
        problem = {"end": "the text ends", "other": "unexpected character"}.get(kind, "unexpected token")
        if self._next >= MAX_TOKENS:
            problem, expected = "too long", f"at most {MAX_TOKENS} tokens"
        value: dict[str, Any] = {} if kind == "end" else {"value": word}
        raise InvalidArgument(
            field="program",
            problem=f"token {position}: {problem}",
            **value,
            expected=expected,
            metadata={"token": position},
        )

    # Brackets

    def _open(self, kind: str) -> None:
        if self._peek()[0] == "bare":
            self.repairs[FIXED_OPENERS] = None
        elif self._peek() != ("opener", f"{kind}("):
            self._fail(f"{kind}(")
        if self._depth >= MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} nested brackets")
        self._take()
        self._depth += 1

    def _close(self, kind: str) -> None:
        token, word = self._peek()
        if kind == "c" and word in ("i(", "w("):  # no condition contains a block
            self.repairs[ADDED_CLOSERS] = None
            self._depth -= 1
            return
        if token != "closer":
            self._fail(f"{kind})")
        last = self._program_ends(1)
        if word == "m)" and kind != "m" and last:
            # The last m) closes the program, and every block that is still open.
            self.repairs[ADDED_CLOSERS] = None
        else:
            if kind == "m" and word not in ("m)", ")") and not last:
                self._fail("m): the closing brackets do not match")
            if word != f"{kind})":
                self.repairs[FIXED_CLOSERS] = None
            self._take()
        self._depth -= 1

    def _program_ends(self, ahead: int) -> bool:
        """Whether no token of the same program follows."""
        kind, word = self._peek(ahead)
        if kind in ("end", "other"):
            return True
        names = (*KEYWORDS, "ELSE", *self._language.actions)
        return kind in ("name", "call") and word.removesuffix("()") not in names

    # Grammar

    def program(self) -> Program:
        self._take()
        if self._name() != "run":
            self._fail("run")
        self._take()
        body = self._block("m")
        if self._next < len(self._tokens):
            self.repairs[CUT] = None
        return Program(body)

    def _block(self, kind: str) -> tuple[Statement, ...]:
        statements = self._possibly_empty(kind)
        if not statements:
            self._next -= 1
            self._fail("at least one statement")
        return statements

    def _possibly_empty(self, kind: str) -> tuple[Statement, ...]:
        self._open(kind)
        statements = []
        while self._peek()[0] != "closer":
            statements.append(self._statement())
        self._close(kind)
        return tuple(statements)

    def _statement(self) -> Statement:
        name = self._name()
        if name in self._language.actions:
            self._take()
            return Action(name)
        match name:
            case "WHILE":
                self._take()
                return While(self._condition_in_brackets(), self._block("w"))
            case "REPEAT":
                self._take()
                return Repeat(self._count(), self._block("r"))
            case "IF" | "IFELSE":
                return self._if(self._take())
        self._fail(f"one of {', '.join((*self._language.actions, *KEYWORDS))}, or a closing bracket")

    def _if(self, keyword: str) -> Statement:
        condition = self._condition_in_brackets()
        body = self._block("i")
        orelse: tuple[Statement, ...] = ()
        if self._name() == "ELSE":
            self._take()
            orelse = self._possibly_empty("e")
        if (keyword == "IFELSE") != bool(orelse):
            self.repairs[TO_IFELSE if orelse else TO_IF] = None
        return IfElse(condition, body, orelse) if orelse else If(condition, body)

    def _count(self) -> int:
        if self._peek()[0] != "count":
            self._fail("R=n")
        count = int(self._take()[2:])
        if not 0 <= count <= LARGEST_COUNT:
            self.repairs[CLAMPED] = None
        return min(max(count, 0), LARGEST_COUNT)

    def _condition_in_brackets(self) -> Condition:
        if self._peek()[0] in ("opener", "bare"):
            self._open("c")
            self._conditions += 1
            condition = self._condition()
            self._close("c")
            self._conditions -= 1
            return condition
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} nested brackets")
        condition = self._condition()
        self.repairs[ADDED_BRACKETS] = None
        closers = 0
        while closers <= self._conditions and self._peek(closers) == ("closer", "c)"):
            closers += 1
        if closers > self._conditions:  # more than the open c( need: one belongs to the missing c(
            self._take()
        self._depth -= 1
        return condition

    def _condition(self) -> Condition:
        name = self._name()
        if name in self._language.tests:
            self._take()
            return self._test(name)
        match name:
            case "not":
                self._take()
                return Not(self._condition_in_brackets())
            case "and" | "or":
                self._take()
                left = self._condition_in_brackets()
                right = self._condition_in_brackets()
                return And(left, right) if name == "and" else Or(left, right)
            case "True" | "False":
                self._take()
                return Constant(name == "True")
        self._fail(f"one of {', '.join((*self._language.tests, 'not', 'and', 'or', 'True', 'False'))}")

    def _test(self, name: str) -> Test:
        arguments = self._language.tests[name]
        if not arguments:
            return Test(name)
        bracketed = self._peek()[0] in ("opener", "bare")
        if bracketed:
            self._open("h")
        else:
            self.repairs[ADDED_ARGUMENT] = None
        argument = self._name()
        if argument not in arguments:
            self._fail(f"one of {', '.join(arguments)}")
        self._take()
        if bracketed:
            self._close("h")
        return Test(name, argument)
