"""The same world as compiled rules: the fast path. The map is flat, with one more ring of walls around it."""

from dressage.programs.languages.rules import CompiledRules, Machine, Start, compiled, set_cell

from vacuum.rooms import DIRT, FLOOR, FORWARD, SUCK, TURN_LEFT, TURN_RIGHT, WALL, room

LEFT = 0  # place in the memory: dirty cells that are left
WALL_AHEAD, DIRT_AHEAD, DIRT_HERE = range(3)  # tests in the order of the language


@compiled
def begin(task, width, state, deltas, facts, position, body):
    """Set the memory, and the offsets of the cell ahead by heading."""
    deltas[0], deltas[1], deltas[2], deltas[3] = -width, 1, width, -1
    state[LEFT] = facts[0]


@compiled
def perceive(test, cells, position, heading, state, deltas):
    """Return the outcome of a test."""
    if test == DIRT_HERE:
        return cells[position] == DIRT
    ahead = cells[position + deltas[heading]]
    return ahead == WALL if test == WALL_AHEAD else ahead == DIRT


@compiled
def act(action, blocked, task, width, cells, special, facts, food, state, deltas, body, keys, marks, position, heading):
    """Perform an action: position, heading, reward, whether the task ends, and whether cells changed."""
    reward, touched = 0.0, False
    if blocked:  # the limit of calls is exceeded
        return position, heading, reward, False, touched
    if action == FORWARD:
        ahead = position + deltas[heading]
        if cells[ahead] != WALL:
            position = ahead
    elif action == TURN_LEFT:
        heading = (heading + 3) & 3
    elif action == TURN_RIGHT:
        heading = (heading + 1) & 3
    elif action == SUCK and cells[position] == DIRT:
        set_cell(cells, keys, marks, position, FLOOR)
        touched = True
        state[LEFT] -= 1
        reward = 1 / facts[0]
    return position, heading, reward, state[LEFT] == 0, touched


def start(task, number):
    """Return an initial state by its number; the number of dirty cells is the only fact that the rules need."""
    cells, robot, heading = room(task, number)
    return Start(cells, robot, heading, facts=[(cells == DIRT).sum()])


RULES = CompiledRules(
    machine=Machine(begin, perceive, act, max_calls=999, contents=3),
    start=start,
    wall=WALL,
    looks={FLOOR: (".", ""), DIRT: ("o", "dirt"), WALL: ("#", "wall")},
)
