"""Numbers of tree nodes and of instructions, and the limits of compiled programs."""

from __future__ import annotations

# Nodes of a flat tree, in preorder. A block of several statements is a chain of SEQUENCE nodes that leans to the right.
SEQUENCE, WHILE, IF, IFELSE, REPEAT = 0, 1, 2, 3, 4
NOT, AND, OR, TRUE, FALSE = 5, 6, 7, 8, 9
ACTION = 16
"""First action; the others follow in the order of the language."""
TEST = 32
"""First test; the others follow in the order of `trees.tests_of`."""
COUNT = 64
"""Count of a REPEAT, plus its value."""

# Instructions. Each takes four integers: operation, operand, target (an offset into the code), detail.
END, JUMP, BRANCH, LOOP, REPEAT_SET, REPEAT_NEXT = 0, 1, 2, 3, 4, 5
FLAG_TEST, FLAG_NOT, FLAG_SET, JUMP_FALSE, JUMP_TRUE = 6, 7, 8, 9, 10
OPERATE = 16
"""First action as an instruction, in the order of the language."""
FLAG = 31
"""Operand of BRANCH and LOOP that reads the flag of a compound condition instead of performing a test."""

STRIDE = 4
MAX_NODES = 8192
"""Nodes of the largest tree; what the parser accepts is smaller."""
STACK = 512
"""Entries of the compiler's stack; nesting is bounded by the parser."""
