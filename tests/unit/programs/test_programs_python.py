"""Python to programs: the lowering keeps the meaning that Python gives to the source; everything else is rejected."""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from random import Random
from typing import Any

import pytest
from dressage.errors import InvalidArgument
from dressage.programs.from_python import from_python
from dressage.programs.syntax import KAREL, MAX_CHARACTERS, MINIGRID, Program, parse, to_text
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.reference.interpreter import run
from tests.unit.programs.strategies import SEEDS

MOST_ACTIONS = 150
MOST_PERCEPTIONS = 2000


class Stop(Exception):
    """Ends an endless run of a source in Python."""


class Counter:
    """A world without repeated states: what it answers depends on the actions so far."""

    max_calls = 10**9

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.perceptions = 0

    def answer(self, test: str) -> bool:
        self.perceptions += 1
        if self.perceptions > MOST_PERCEPTIONS:
            raise Stop
        return zlib.crc32(f"{test} {len(self.actions)}".encode()) % 3 > 0

    def perceive(self, test: Any) -> bool:
        return self.answer(test.name)

    def act(self, action: str, *, blocked: bool = False) -> None:
        self.actions.append(action)
        if len(self.actions) >= MOST_ACTIONS:
            raise Stop

    def state(self) -> tuple[object, ...]:
        return (len(self.actions),)


def actions_in_python(source: str) -> list[str]:
    """The actions of a source that Python itself executes."""
    world = Counter()
    names: dict[str, Any] = {name: lambda name=name: world.act(name) for name in KAREL.actions}
    names |= {name: lambda name=name: world.answer(name) for name in KAREL.tests}
    names["counted"] = lambda: world.answer("loop") or True  # so that a loop without perceptions ends, too
    exec(re.sub(r"while (.*):", r"while counted() and (\1):", source), names)
    with contextlib.suppress(Stop):
        names["run"]()
    return world.actions


def actions_of_program(program: Program) -> list[str]:
    world = Counter()
    with contextlib.suppress(Stop):
        run(program, world, lambda world: (False, 0.0))
    return world.actions


def condition(random: Random, depth: int = 3) -> str:
    kind = random.choice(["test", "test", "test", "constant", *(["not", "and", "or", "brackets"] if depth else [])])
    if kind == "test":
        return f"{random.choice(list(KAREL.tests))}()"
    if kind == "constant":
        return random.choice(["True", "False"])
    left, right = condition(random, depth - 1), condition(random, depth - 1)
    return f"not {left}" if kind == "not" else f"({left})" if kind == "brackets" else f"{left} {kind} {right}"


def body(random: Random, depth: int = 3) -> list[str]:
    """Lines of a block with an indentation of its own."""
    lines: list[str] = []
    indent = random.choice(["  ", "    ", "\t", " "])
    for _ in range(random.randint(1, 3)):
        kind = random.choice(["action", "action", "pass", "text", *(["for", "while", "if", "if"] if depth else [])])
        if kind == "action":
            lines.append(f"{random.choice(KAREL.actions)}()  # act")
        elif kind == "pass":
            lines.append("pass")
        elif kind == "text":
            lines += ['"""text"""', "# remark"]
        elif kind == "for":
            bounds = random.choice(["-1", "0", "3", "5", "2, 4", "-1, 1", "4, 2"])
            lines += [f"for {random.choice('i_')} in range({bounds}):", *body(random, depth - 1)]
        elif kind == "while":
            lines += [f"while {condition(random)}:", *body(random, depth - 1)]
        else:
            lines += [f"if {condition(random)}:", *body(random, depth - 1)]
            for _ in range(random.randint(0, 2)):
                lines += [f"elif {condition(random)}:", *body(random, depth - 1)]
            if random.random() < 0.5:
                lines += ["else:", *body(random, depth - 1)]
    return [indent + line for line in lines]


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_lowered_program_acts_as_its_python_source(seed):
    source = "\n".join(["def run():", *body(Random(seed))])
    try:
        program = from_python(source, KAREL)
    except InvalidArgument as error:
        if "nothing" not in error.message:
            raise
        reject()
    assert parse(to_text(program), KAREL) == program
    assert actions_of_program(program) == actions_in_python(source)


LOWERED = [
    ("def run():\n    move()", "move"),
    ("    def run():\n        move()\n", "move"),
    ("# text\n'doc'\ndef run() -> None:\n\t'doc'\n\tmove()  # text", "move"),
    ("def run(): move(); turnLeft()", "move turnLeft"),
    ("def run():\n  for _ in range(2, 5):\n    move()", "REPEAT R=3 r( move r)"),
    ("def run():\n  for i in range(5, 2):\n    move()", "REPEAT R=0 r( move r)"),
    ("def run():\n  for i in range(3):\n    pass\n  move()", "move"),
    ("def run():\n  if frontIsClear():\n    pass\n  move()", "move"),
    ("def run():\n  if frontIsClear():\n    pass\n  else:\n    move()", "IF c( not c( frontIsClear c) c) i( move i)"),
    ("def run():\n  if frontIsClear():\n    move()\n  else:\n    pass", "IF c( frontIsClear c) i( move i)"),
    (
        "def run():\n  if frontIsClear():\n    move()\n  elif leftIsClear():\n    turnLeft()\n  else:\n    turnRight()",
        "IFELSE c( frontIsClear c) i( move i) ELSE e( IFELSE c( leftIsClear c) i( turnLeft i) ELSE e( turnRight e) e)",
    ),
    (
        "def run():\n  while not (frontIsClear() and leftIsClear()) or True:\n    move()",
        "WHILE c( or c( not c( and c( frontIsClear c) c( leftIsClear c) c) c) c( True c) c) w( move w)",
    ),
    (
        "def run():\n  if frontIsClear() and leftIsClear() and rightIsClear(): move()",
        "IF c( and c( and c( frontIsClear c) c( leftIsClear c) c) c( rightIsClear c) c) i( move i)",
    ),
]


@pytest.mark.parametrize(("source", "body"), LOWERED, ids=[str(index) for index in range(len(LOWERED))])
def test_lowering_by_example(source, body):
    assert to_text(from_python(source, KAREL)) == f"DEF run m( {body} m)"


def test_a_minigrid_test_takes_its_argument_as_a_string():
    source = 'def run():\n  if front_object_color("red") and not front_object_type("door"):\n    toggle()'
    body = "IF c( and c( front_object_color h( red h) c) c( not c( front_object_type h( door h) c) c) c) i( toggle i)"
    assert to_text(from_python(source, MINIGRID)) == f"DEF run m( {body} m)"


REJECTED = [
    ("x = 1\ndef run():\n  move()", 1, "an assignment outside of run()"),
    ("import os\ndef run():\n  move()", 1, "an import outside of run()"),
    ("def run():\n  move()\nrun()", 3, "outside of run()"),
    ("move()", 1, "outside of run()"),
    ("", 1, "there is no function"),
    ("def walk():\n  move()", 1, "the function is named walk"),
    ("def run():\n  move()\ndef run():\n  move()", 3, "a second function"),
    ("def run(n=3):\n  move()", 1, "parameters"),
    ("@cache\ndef run():\n  move()", 2, "a decorator"),
    ("async def run():\n  move()", 1, "async"),
    ("def run():\n  pass", 1, "run() does nothing"),
    ("def run():\n  '''only text'''", 1, "run() does nothing"),
    ("def run():\n  n = 3", 2, "an assignment is not supported (got 'n = 3')"),
    ("def run():\n  move()\n  return", 3, "return is not supported"),
    ("def run():\n  while frontIsClear():\n    break", 3, "break is not supported"),
    ("def run():\n  run()", 2, "unknown action"),
    ("def run():\n  print('x')", 2, "unknown action (got \"print('x')\"); expected one of move, turnLeft"),
    ("def run():\n  karel.move()", 2, "a call of an attribute"),
    ("def run():\n  __import__('os').system('true')", 2, "a call of an attribute"),
    ("def run():\n  move(2)", 2, "move takes no argument"),
    ("def run():\n  frontIsClear()", 2, "a test is not an action"),
    ("def run():\n  move", 2, "a variable is not supported here"),
    ("def run():\n  if move():\n    move()", 2, "an action is not a condition"),
    (
        "def run():\n  if frontIsClear:\n    move()",
        2,
        "a test without its call (got 'frontIsClear'); expected frontIsClear()",
    ),
    ("def run():\n  if frontIsClear(1):\n    move()", 2, "frontIsClear takes no argument"),
    ("def run():\n  if frontIsClear() == True:\n    move()", 2, "a comparison is not supported in a condition"),
    ("def run():\n  while 1:\n    move()", 2, "a value is not supported in a condition"),
    ("def run():\n  if not move:\n    move()", 2, "a variable is not supported in a condition"),
    ("def run():\n  move() if frontIsClear() else turnLeft()", 2, "a conditional expression is not supported here"),
    ("def run():\n  while frontIsClear():\n    pass", 2, "a while that does nothing"),
    ("def run():\n  while frontIsClear():\n    move()\n  else:\n    turnLeft()", 5, "else of a loop"),
    ("def run():\n  for i in range(3):\n    move()\n  else:\n    turnLeft()", 5, "else of a loop"),
    ("def run():\n  for i in range(n):\n    move()", 2, "not a constant (got 'n'); expected an integer"),
    ("def run():\n  for i in range(True):\n    move()", 2, "not a constant"),
    ("def run():\n  for i in range(2.0):\n    move()", 2, "not a constant"),
    ("def run():\n  for i in range(0, 9, 2):\n    move()", 2, "not a range of constants"),
    ("def run():\n  for i in [1, 2]:\n    move()", 2, "not a range of constants"),
    ("def run():\n  for i, j in range(2):\n    move()", 2, "not a loop variable"),
    ("def run():\n  for i in range(10001):\n    move()", 2, "too many repetitions"),
    ("def run():\n  move()\n  move(", 3, "Python cannot parse it"),
    ("def run():\n  move()\n    move()", 3, "Python cannot parse it: unexpected indent"),
    ("def run():\n\tmove()\n        move()", 3, "Python cannot parse it"),
]


@pytest.mark.parametrize(("source", "line", "problem"), REJECTED, ids=[str(index) for index in range(len(REJECTED))])
def test_everything_else_is_rejected_with_line_and_reason(source, line, problem):
    with pytest.raises(InvalidArgument) as error:
        from_python(source, KAREL)
    assert error.value.message.startswith(f"program: line {line}: ")
    assert problem in error.value.message
    assert "; expected " in error.value.message
    assert error.value.metadata == {"line": str(line)}


@pytest.mark.parametrize("call", ["front_object_type()", 'front_object_type("key")', "front_object_type(door)",
                                  'front_object_type("door", "door")', 'front_object_type(kind="door")'])  # fmt: skip
def test_an_argument_outside_of_its_set_is_rejected(call):
    with pytest.raises(
        InvalidArgument, match=r'line 2: front_object_type takes one argument.*"lava", "door", "ball", "box"'
    ):
        from_python(f"def run():\n  if {call}:\n    left()", MINIGRID)


CALL = "frontIsClear()"
HOSTILE = {
    "megabytes": "def run():\n" + "  move()\n" * 500_000,
    "many statements": "def run():\n" + " move()\n" * 5_000,
    "open brackets": "(" * MAX_CHARACTERS,
    "brackets": f"def run():\n if {'(' * 250}{CALL}{')' * 250}: move()",
    "not": f"def run():\n if {'not ' * 500}{CALL}: move()",
    "many not": f"def run():\n if {'not ' * 15_000}{CALL}: move()",
    "and": f"def run():\n if {f'{CALL} and ' * 200}{CALL}: move()",
    "many and": f"def run():\n if {f'{CALL} and ' * 3000}{CALL}: move()",
    "sum": "def run():\n " + "1+" * 30_000 + "1",
    "minus": "def run():\n " + "-" * 60_000 + "1",
    "attributes": "def run():\n a" + ".a" * 30_000,
    "calls": "def run():\n a" + "()" * 30_000,
    "elif": f"def run():\n if {CALL}: move()\n" + f" elif {CALL}: move()\n" * 1500,
    "blocks": "def run():\n" + "".join(" " * level + "while True:\n" for level in range(1, 90)) + " " * 90 + "move()",
    "number": f"def run():\n for i in range({'9' * 60_000}): move()",
    "hex number": f"def run():\n for i in range(0x{'f' * 60_000}): move()",
    "null": "def run():\n move()\0",
    "surrogate": "def run():\n '\ud800'\n move()",
    "one line": "def run(): " + "move();" * 9000,
    "braces": "{" * 150 + "}" * 150,
    "f-string": "def run():\n f'" + "{a!r:" * 60 + "'",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_source_ends_in_a_short_error_soon(source):
    start = time.process_time()
    with pytest.raises(InvalidArgument) as error:
        from_python(source, KAREL)
    assert time.process_time() - start < 2
    assert len(error.value.message) < 400


@given(st.text(alphabet="defrunmoveifnot():\n \t'\"#\\0{}[]", max_size=80))
@settings(max_examples=300)
def test_any_text_is_a_program_or_an_invalid_argument(text):
    with contextlib.suppress(InvalidArgument):
        from_python(f"def run():\n {text}", KAREL)
