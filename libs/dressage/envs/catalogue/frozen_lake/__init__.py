"""What FrozenLake-v1 is: a slippery lake of 4 × 4 cells."""

from __future__ import annotations

from dressage.envs.plain import PlainEnvironment, choice, common_fields, derived_field, number_of, one_hot

_SIZE = 4
_MAP = ("SFFF", "FHFH", "FFFH", "HFFG")
_WORDS = {"S": "the start", "F": "ice", "H": "a hole", "G": "the goal"}


def _words(cell: int) -> str:
    row, column = divmod(cell, _SIZE)
    return f"the agent is on cell {cell} (row {row}, column {column}: {_WORDS[_MAP[row][column]]})"


_CELLS = _SIZE * _SIZE

_LAKE = PlainEnvironment(
    title="slippery frozen lake of 4 × 4 cells",
    description=(
        "An agent walks over a frozen lake of 4 × 4 cells from the start, cell 0, to the goal, cell 15, without "
        "falling into a hole. Cells are numbered row by row from the top left. The rows, from the top, with S = "
        f"start, F = ice, H = hole, G = goal: {', '.join(_MAP)}. The holes are the cells 5, 7, 11 and 12. The ice is "
        "slippery: the agent moves in the chosen direction with probability 1/3 and in each of the two directions at "
        "right angles to it with probability 1/3. A move off the edge leaves it where it is. Not even the best "
        "policy always arrives: it does in 74 of 100 episodes of 100 steps."
    ),
    termination="the agent is on the goal or in a hole.",
    stock_reward="1 for the step that reaches the goal, else 0",
    example_intents=("reach the goal", "cross the lake without falling into a hole"),
    observation_components=one_hot("cell", _CELLS, _words),
    action=choice("direction", "left", "down", "right", "up"),
    num_actions=4,
    num_observations=_CELLS,
    bound=(
        *common_fields(_CELLS, 1.0, stock=True),
        number_of("cell", "number of the cell on which the agent is, row by row from 0"),
        derived_field("row", "1", "row of that cell, 0 = top", lambda observed: observed.argmax(axis=1) // _SIZE * 1.0),
        derived_field(
            "column", "1", "column of that cell, 0 = left", lambda observed: observed.argmax(axis=1) % _SIZE * 1.0
        ),
    ),
)

WORDS = {"FrozenLake-v1": _LAKE}
