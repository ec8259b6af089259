"""Compiles flat trees to instructions (see `codes`) within compiled code.

Loops are tested at the bottom: one instruction per iteration tests, records the state and jumps. A condition that is a test
or its negation becomes part of the branch; any other goes through a flag.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import allocation_free
from dressage.programs.engine.codes import (
    ACTION,
    AND,
    BRANCH,
    COUNT,
    END,
    FALSE,
    FLAG,
    FLAG_NOT,
    FLAG_SET,
    FLAG_TEST,
    IF,
    IFELSE,
    JUMP,
    JUMP_FALSE,
    JUMP_TRUE,
    LOOP,
    MAX_NODES,
    NOT,
    OPERATE,
    OR,
    REPEAT,
    REPEAT_NEXT,
    REPEAT_SET,
    SEQUENCE,
    STACK,
    STRIDE,
    TEST,
    TRUE,
    WHILE,
)

# What remains to do when a node is complete: entries of the stack, each of four integers (work, offset, first, second).
_STATEMENT, _END_WHILE, _END_IF, _ELSE, _END_REPEAT = 0, 1, 2, 3, 4
_CONDITION, _NEGATE, _SHORT, _END_SHORT = 0, 1, 2, 3

STACK_SIZE = 4 * STACK
"""Integers of the stack that `compile_nodes` needs."""


def workspace(nodes: int = MAX_NODES) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return arrays for the code and the stack of trees of at most so many nodes."""
    return np.zeros(4 * STRIDE * (nodes + 1), np.int32), np.zeros(STACK_SIZE, np.int32)


@allocation_free(inline=True)
def emit(code: Any, at: int, operation: int, operand: int, target: int, detail: int) -> int:
    """Write an instruction and return the offset of the next one."""
    code[at] = operation
    code[at + 1] = operand
    code[at + 2] = target
    code[at + 3] = detail
    return at + STRIDE


@allocation_free()
def compile_condition(nodes: Any, i: int, code: Any, at: int, stack: Any, top: int) -> Any:
    """Write what a condition needs before its branch.

    :return: the next node, the next offset, the operand of the branch and the outcome that counts as true; node -1 if the
        condition does not fit the stack.
    """
    outcome, first = 1, i
    while nodes[first] == NOT:
        outcome = 1 - outcome
        first += 1
    if nodes[first] >= TEST:
        return first + 1, at, nodes[first] - TEST, outcome
    base, done = top, False
    while not done:
        node = nodes[i]
        i += 1
        if node == NOT or node == AND or node == OR:
            if top + 4 > len(stack):
                return -1, at, 0, 0
            stack[top] = _NEGATE if node == NOT else _SHORT
            stack[top + 1] = JUMP_FALSE if node == AND else JUMP_TRUE
            top += 4
            continue
        if node == TRUE or node == FALSE:
            at = emit(code, at, FLAG_SET, 1 if node == TRUE else 0, 0, 0)
        else:
            at = emit(code, at, FLAG_TEST, node - TEST, 0, 0)
        while True:  # a condition is complete: so may be those around it
            if top == base:
                done = True
                break
            work = stack[top - 4]
            if work == _NEGATE:
                at = emit(code, at, FLAG_NOT, 0, 0, 0)
                top -= 4
            elif work == _SHORT:  # the left side is complete
                stack[top - 4] = _END_SHORT
                stack[top - 2] = at
                at = emit(code, at, stack[top - 3], 0, 0, 0)
                break
            else:
                code[stack[top - 2] + 2] = at
                top -= 4
    return i, at, FLAG, 1


@allocation_free()
def compile_nodes(nodes: Any, code: Any, stack: Any) -> Any:
    """Compile a whole tree.

    Each step consumes a node or an entry of the stack, and each node pushes at most one entry, so that the work is bounded
    by twice the number of nodes.

    :return: the number of integers written to ``code``, or -1 if the nesting exceeds the stack.
    """
    i, at, top, slots, loops = 0, 0, 0, 0, 0
    while True:
        if top + 4 > len(stack):
            return -1
        node = nodes[i]
        i += 1
        if node == SEQUENCE:
            stack[top] = _STATEMENT
            top += 4
            continue
        if node == WHILE:
            # The condition is written below the body; its nodes are remembered, and its length is skipped over.
            start = i
            open_ = 1
            while open_ > 0:
                if nodes[i] == AND or nodes[i] == OR:
                    open_ += 1
                elif nodes[i] != NOT:
                    open_ -= 1
                i += 1
            stack[top] = _END_WHILE
            stack[top + 1] = at
            stack[top + 2] = start
            stack[top + 3] = loops
            loops += 1
            at = emit(code, at, JUMP, 0, 0, 0)
            top += 4
            continue
        if node == IF or node == IFELSE:
            i, at, operand, outcome = compile_condition(nodes, i, code, at, stack, top)
            if i < 0:
                return -1
            stack[top] = _END_IF if node == IF else _ELSE
            stack[top + 1] = at
            at = emit(code, at, BRANCH, operand, 0, outcome)
            top += 4
            continue
        if node == REPEAT:
            stack[top] = _END_REPEAT
            stack[top + 1] = at
            stack[top + 2] = slots
            at = emit(code, at, REPEAT_SET, slots, 0, nodes[i] - COUNT)
            at = emit(code, at, JUMP, 0, 0, 0)
            slots += 1
            i += 1
            top += 4
            continue
        at = emit(code, at, OPERATE + node - ACTION, 0, 0, 0)
        while True:  # a statement is complete: so may be those around it
            if top == 0:
                return emit(code, at, END, 0, 0, 0)
            work = stack[top - 4]
            start = stack[top - 3]
            if work == _STATEMENT:
                top -= 4
                break
            if work == _ELSE:
                stack[top - 4] = _END_IF
                stack[top - 3] = at
                at = emit(code, at, JUMP, 0, 0, 0)
                code[start + 2] = at
                break
            if work == _END_WHILE:
                code[start + 2] = at
                end, at, operand, outcome = compile_condition(nodes, stack[top - 2], code, at, stack, top)
                if end < 0:
                    return -1
                at = emit(code, at, LOOP, operand | (stack[top - 1] << 8), start + STRIDE, outcome)
            elif work == _END_IF:
                code[start + 2] = at
            else:
                code[start + STRIDE + 2] = at
                at = emit(code, at, REPEAT_NEXT, stack[top - 2], start + 2 * STRIDE, 0)
            top -= 4
