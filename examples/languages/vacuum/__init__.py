"""A vacuum robot: a language of your own for the method `program`. `docs/own-languages.md` explains it."""

from dressage.programs.languages.plugin import Plugin, Productions, Task

from vacuum.rooms import TASKS, VacuumRoom


def _rules():  # the compiler is imported when the rules are first used
    from vacuum.rules import RULES

    return RULES


PLUGIN = Plugin(
    name="vacuum",
    world=(
        "The world is a room of square cells with walls around it. A cell is empty, dirty, or a wall. One robot is on a cell "
        "and faces north, east, south or west. It perceives only what the tests below report."
    ),
    execution=(
        "An episode ends when the program ends, when the room is clean, or at the 1,000th action or test. It also ends, "
        "without a penalty, when a while loop is about to run its body in a state in which the same loop has run it before: "
        "same cell, same direction, same dirt."
    ),
    actions={
        "forward": "Go one cell forward. At a wall nothing happens.",
        "turnLeft": "Turn left by 90 degrees.",
        "turnRight": "Turn right by 90 degrees.",
        "suck": "Remove the dirt on the robot's cell.",
    },
    tests={
        "wallAhead": "The cell in front is a wall.",
        "dirtAhead": "The cell in front is dirty.",
        "dirtHere": "The robot's cell is dirty.",
    },
    tasks={
        "Corridor": Task(
            map="A corridor of 1x10 cells. Three to six random cells are dirty.",
            start="The robot starts in the cell at the west end and faces a random direction.",
            goal="Remove all dirt.",
            returns="1 divided by the number of dirty cells for each one that becomes clean.",
            intent="clean the corridor",
        ),
        "CleanRoom": Task(
            map="A room of 6x6 cells. Six to twelve random cells are dirty, and three random cells are walls.",
            start="The robot starts in a random cell and faces a random direction.",
            goal="Remove all dirt.",
            returns="1 divided by the number of dirty cells for each one that becomes clean.",
            intent="clean the whole room",
        ),
    },
    productions=Productions(
        statements={"sequence": 0.5, "WHILE": 0.15, "IF": 0.1, "IFELSE": 0.05, "REPEAT": 0.03, "action": 0.17},
        actions={"forward": 0.4, "turnLeft": 0.15, "turnRight": 0.15, "suck": 0.3},
        negation=0.3,
    ),
    max_calls=999,
    compiled=_rules,
    environment=VacuumRoom,
)

__all__ = ["PLUGIN", "TASKS"]
