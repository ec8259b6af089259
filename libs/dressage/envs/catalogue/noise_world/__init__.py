"""What NoiseWorld0-v0 to NoiseWorld6-v0 are.

The words must not give away what a cell's code means, nor what a board needs before its goal pays, so this module does not
import the rules.
"""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.namespace import library_of
from dressage.envs.plain import PlainEnvironment, choice, column, common_fields, derived_field
from dressage.envs.state import Array

_BOARDS = 7
_BOTH = 2
"""Numbers of the observation before the codes: row and column."""


def _size(board: int) -> int:
    return 5 if board == 0 else 10


def _world(board: int) -> PlainEnvironment:
    size = _size(board)

    def code(observed: Array) -> Array:
        rows, columns = observed[:, 0].astype(int), observed[:, 1].astype(int)
        codes: Array = observed[library_of(observed).arange(len(observed)), _BOTH + rows * size + columns]
        return codes

    group = "codes of the cells, row by row from the top left"
    cells = (
        ObservationComponent(
            f"code_{row}_{column}", "1", f"code of the cell in row {row}, column {column}", group=group
        )
        for row in range(size)
        for column in range(size)
    )
    components = (
        ObservationComponent("row", "1", f"row of the agent's cell, 0 = top, to {size - 1}"),
        ObservationComponent("column", "1", f"column of the agent's cell, 0 = left, to {size - 1}"),
        *cells,
    )
    return PlainEnvironment(
        title=f"board {board} of {size} × {size} cells with unknown codes",
        description=(
            f"An agent moves over a board of {size} × {size} cells from the cell in row 0, column 0. Each cell has an "
            "integer code, 0 to 7, and the observation contains the codes of all cells; the board is the same in "
            "every episode. What the codes mean is not known: a code decides what a move onto or away from such a "
            "cell does, and some effects are random. Somewhere on the board there is a large reward, and there may "
            "be places with a large penalty."
        ),
        termination="the agent is on a cell that ends the episode, with or without a reward.",
        stock_reward=(
            f"-1 for every step, plus {size**3} for the step that earns the large reward, minus {size**5} for a step "
            "with the large penalty"
        ),
        example_intents=("get the large reward", "get the large reward in as few steps as possible"),
        observation_components=components,
        action=choice("move", "up (row - 1)", "right (column + 1)", "down (row + 1)", "left (column - 1)"),
        num_actions=4,
        bound=(
            *common_fields(len(components), 1.0, stock=False),
            column("row", "1", "row of the agent's cell, 0 = top", 0),
            column("column", "1", "column of the agent's cell, 0 = left", 1),
            derived_field("code", "1", "code of the agent's cell", code),
        ),
    )


WORDS = {f"NoiseWorld{board}-v0": _world(board) for board in range(_BOARDS)}
