"""The apartment of CleanHouse."""

from __future__ import annotations

APARTMENT = (
    "######################",
    "#..##########.#......#",
    "#..#..........#####.##",
    "##.#................##",
    "##........#.........##",
    "###.#.###.#..###.#.###",
    "#...#...#....#...#..##",
    "#...#...#....#...#...#",
    "#...#...#....#...##..#",
    "#...#...##..##...##.##",
    "#...#...##..##...#..##",
    "#...#...##..##...#..##",
    "#...#...##..##...#..##",
    "######################",
)
"""Rows of the map; # is a wall."""

START = (1, 13)
FIXED_MARKER = (2, 12)
RANDOM_MARKERS = 10

_ORDER = """
6.18 12.1 6.15 4.9 12.10 4.6 12.19 3.16 4.15 8.9 11.5 2.2 10.3 11.14 2.11 11.11 2.8 6.2 1.18 7.1 1.15 4.2 12.3 4.8 5.3
3.18 9.1 3.15 5.12 12.18 4.17 9.10 11.7 2.4 10.5 1.2 9.19 11.16 2.1 10.14 2.10 1.20 7.3 1.17 6.10 7.12 12.5 3.2 6.19
7.18 12.14 5.5 9.3 3.17 4.19 8.1 10.7 8.19 10.16 6.6 7.5 1.19 6.3 7.14 6.12 12.7 3.4 4.3 7.20 12.16 9.5 3.19 5.16 8.3
9.14 8.12 9.11 2.5 10.18 7.7 6.5 7.16 6.14 12.6 12.15 4.14 5.9 9.7 8.5 5.18 11.1 9.16 8.14 10.11 11.10 2.7 6.1 8.20
11.19 2.13 7.9 6.7 12.2 6.16 12.11 4.7 4.4 3.14 4.13 8.7 1.1 11.3 10.1 8.16 10.10 2.9 2.6 10.19 1.16 11.18 6.9
"""


def marker_cells() -> list[tuple[int, int]]:
    """Return the cells that may get a random marker, as (row, column), in the order that seeds refer to.

    The original keeps them in a Python set; its order is part of the published initial states and was recovered from them.
    Nine of the 121 cells occur in none of the published states: their places follow from the hash order of the others.
    """
    return [(int(row), int(column)) for row, column in (cell.split(".") for cell in _ORDER.split())]
