"""What Maze3x3-v0 is."""

from __future__ import annotations

from dressage.envs.plain import PlainEnvironment, choice, common_fields, derived_field, number_of, one_hot

_SIZE, _CELLS = 3, 9


def _words(cell: int) -> str:
    return f"the agent is on cell {cell} (row {cell // _SIZE}, column {cell % _SIZE})"


_MAZE = PlainEnvironment(
    title="maze of 3 × 3 cells",
    description=(
        "An agent looks for the way through a maze of 3 × 3 cells, numbered row by row from 0 at the top left, where "
        "it starts, to 8 at the bottom right, the goal. There are walls between some neighbouring cells, and around "
        "the maze; a move against a wall leaves the agent where it is. The walls are the same in every episode. The "
        "observation does not contain them."
    ),
    termination="the agent is on the goal.",
    stock_reward="1 for the step that reaches the goal, -0.1/9 for every other",
    example_intents=("reach the goal", "reach the goal in as few steps as possible"),
    observation_components=one_hot("cell", _CELLS, _words),
    action=choice("move", "north (row - 1)", "south (row + 1)", "east (column + 1)", "west (column - 1)"),
    num_actions=4,
    num_observations=_CELLS,
    bound=(
        *common_fields(_CELLS, 1.0, stock=False),
        number_of("cell", "number of the cell on which the agent is, row by row from 0"),
        derived_field("row", "1", "row of that cell, 0 = top", lambda observed: observed.argmax(axis=1) // _SIZE * 1.0),
        derived_field(
            "column", "1", "column of that cell, 0 = left", lambda observed: observed.argmax(axis=1) % _SIZE * 1.0
        ),
    ),
)

WORDS = {"Maze3x3-v0": _MAZE}
