"""The boards of `dressage.envs.small.noise_world` and the meaning of their codes, which no observation and no card contains."""

from __future__ import annotations

from dataclasses import dataclass

DETERMINISTIC, STOCHASTIC_RESET, WALL, TRAP, STOCHASTIC_STAY, GOAL, FIRST_KEY, SECOND_KEY = range(8)
MOST_CODE = SECOND_KEY
STAY_RATE = 0.5
"""Probability that a move away from a stochastic-stay cell fails."""
RESET_RATE = 0.25
"""Probability that a move away from a stochastic-reset cell leads to the start."""


@dataclass(frozen=True)
class Board:
    """A board.

    :param codes: the code of each cell, row by row from the top.
    :param needs_keys: the goal pays only after cells 6 and then 7 have been visited.
    :param target: mean return from which it counts as solved: a little below the optimum, which tests compute.
    :param start: row and column at the start of an episode.
    """

    codes: tuple[tuple[int, ...], ...]
    needs_keys: bool
    target: float
    start: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Rows, and as many columns."""
        return len(self.codes)

    @property
    def steps(self) -> int:
        """Time limit in steps."""
        return self.size**2


def _board(*rows: str, target: float, needs_keys: bool = False) -> Board:
    return Board(tuple(tuple(map(int, row)) for row in rows), needs_keys, target)


BOARDS: tuple[Board, ...] = (
    _board(
        "04000",
        "40002",
        "00240",
        "02200",
        "30005",
        target=112.0,
    ),
    _board(
        "0200000002",
        "0000400200",
        "0040040400",
        "0000422000",
        "2400420224",
        "0200220020",
        "2022044000",
        "2000000044",
        "0000200002",
        "0020000005",
        target=970.0,
    ),
    _board(
        "0200004024",
        "4000420000",
        "2222003244",
        "2000422000",
        "0343200000",
        "0002040040",
        "0400244020",
        "0000020443",
        "2200424040",
        "2420420005",
        target=970.0,
    ),
    _board(
        "0040040200",
        "1024203322",
        "0404304240",
        "3201040040",
        "2000014010",
        "0212020100",
        "0222000020",
        "1024003202",
        "4120411100",
        "4300201225",
        target=900.0,
    ),
    _board(
        "0000040000",
        "0440044024",
        "0040020060",
        "0020000000",
        "7002040200",
        "0020220020",
        "0202220000",
        "0400020000",
        "0000022000",
        "2004002005",
        target=950.0,
        needs_keys=True,
    ),
    _board(
        "0004002322",
        "2027240423",
        "2422222420",
        "0400020040",
        "4030244400",
        "0003000022",
        "0402634000",
        "4000020020",
        "0000000000",
        "0240420025",
        target=940.0,
        needs_keys=True,
    ),
    _board(
        "0011000404",
        "0001224440",
        "3002002222",
        "0602404032",
        "1013224421",
        "0223020200",
        "0404024100",
        "2000100030",
        "2034100420",
        "0422007415",
        target=915.0,
        needs_keys=True,
    ),
)
