"""Drawing and hill climbing of `karel_peer`: trees as nested lists, deep copies, all neighbours drawn up front."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from typing import Any

from dressage.programs.search.settings import Schedule
from dressage.programs.syntax import Action, If, IfElse, Not, Program, Repeat, Test, While, to_text

from support.karel_peer import Peer, draw_condition, draw_statement, draw_test

Tree = list[Any]
Slot = tuple[Tree, int, str, int, int]
"""A child's parent and index, what may be drawn there, depth and position in its block."""


def program_of(tree: Tree) -> Program:
    """Return a tree as a program."""
    return Program(_block(tree))


def _block(tree: Tree) -> tuple[Any, ...]:
    statements = []
    while tree[0] == "sequence":
        statements.append(_statement(tree[1]))
        tree = tree[2]
    return (*statements, _statement(tree))


def _statement(tree: Tree) -> Any:
    kind, *children = tree
    if kind == "repeat":
        return Repeat(children[0][0], _block(children[1]))
    if kind in ("while", "if"):
        return (While if kind == "while" else If)(_condition(children[0]), _block(children[1]))
    if kind == "ifelse":
        return IfElse(_condition(children[0]), _block(children[1]), _block(children[2]))
    return Action(kind)


def _condition(tree: Tree) -> Any:
    return Not(_condition(tree[1])) if tree[0] == "not" else Test(tree[0])


def slots(parent: Tree, index: int, place: str, depth: int, count: int) -> Iterator[Slot]:
    """Yield the slot of a child and all slots below it."""
    yield parent, index, place, depth, count
    tree = parent[index]
    kind = tree[0]
    if kind == "sequence":
        yield from slots(tree, 1, "left", depth, count)
        yield from slots(tree, 2, "statement", depth, count + 1)
    elif kind == "not":
        yield from slots(tree, 1, "test", depth, 1)
    elif kind in ("while", "if", "ifelse", "repeat"):
        head = {"repeat": "number", "ifelse": "test"}.get(kind, "condition")
        yield from slots(tree, 1, head, depth, 1)
        for body in range(2, len(tree)):
            yield from slots(tree, body, "statement", depth + 1, 1)


def allowed(tree: Tree) -> bool:
    """Return whether a tree is within the limits."""
    for parent, index, place, depth, count in slots([tree], 0, "statement", 1, 1):
        control = parent[index][0] in ("while", "if", "ifelse", "repeat")
        if count > 6 or (control and depth >= 4 and place in ("statement", "left")):
            return False
    return len(to_text(program_of(tree)).split()) <= 45


def random_tree(rng: random.Random) -> Tree:
    """Draw trees until one is within the limits."""
    while True:
        tree = draw_statement(rng, 1, 1)
        if allowed(tree):
            return tree


def neighbour(tree: Tree, rng: random.Random) -> Tree:
    """Replace a random node of a copy until the copy is within the limits."""
    while True:
        root = [copy.deepcopy(tree)]
        parent, index, place, depth, _ = rng.choice(list(slots(root, 0, "statement", 1, 1)))
        if place in ("statement", "left"):
            parent[index] = draw_statement(rng, depth, 1, sequence=place == "statement")
        elif place == "number":
            parent[index] = [rng.randrange(20)]
        else:
            parent[index] = draw_test(rng) if place == "test" else draw_condition(rng)
        if allowed(root[0]):
            return root[0]


def climb_for(peer: Peer, seconds: float, seed: int, *, lean: bool) -> tuple[int, float]:
    """Run scheduled hill climbing from random programs; return the programs evaluated and the CPU seconds.

    The clock stops after a climb that has used its time, or within one that has used twice as much.
    """
    rng, schedule = random.Random(seed), Schedule()
    score = peer.lean_score if lean else peer.costly_score
    began, programs = time.process_time(), 0

    def spent() -> float:
        return time.process_time() - began

    while spent() < seconds:
        tree = random_tree(rng)
        best, programs, k = score(program_of(tree)), programs + 1, schedule.neighbours(programs)
        improved = True
        while improved and spent() < 2 * seconds:
            improved = False
            for candidate in [neighbour(tree, rng) for _ in range(k)]:
                value, programs = score(program_of(candidate)), programs + 1
                if value > best:
                    tree, best, improved = candidate, value, True
                    break
    return programs, spent()
