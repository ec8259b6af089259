"""What Nim-v0 is."""

from __future__ import annotations

from dressage.envs.plain import PlainEnvironment, choice, common_fields, number_of, one_hot

_COUNT = 11

_NIM = PlainEnvironment(
    title="misère Nim with ten sticks",
    description=(
        "Ten sticks are on the table. The player and an opponent take turns and remove one, two or three sticks; "
        "whoever removes the last one loses. The player begins. To remove more sticks than are left is illegal and "
        "loses at once. The opponent plays well but not always: where a winning move exists, it makes that move nine "
        "times out of ten, else a random one."
    ),
    termination="no stick is left, or the player's move is illegal.",
    stock_reward="1 for a win, -1 for a loss, 0 for every move after which the game continues",
    example_intents=("win the game", "leave the opponent the last stick"),
    observation_components=one_hot("sticks", _COUNT, lambda index: f"{index} sticks are left at the player's turn"),
    action=choice("take", "remove one stick", "remove two sticks", "remove three sticks"),
    num_actions=3,
    num_observations=_COUNT,
    bound=(
        *common_fields(_COUNT, 1.0, stock=False),
        number_of("sticks", "sticks left at the player's turn, 0 after the last one is removed"),
    ),
)

WORDS = {"Nim-v0": _NIM}
