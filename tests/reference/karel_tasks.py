"""Rewards and termination of the 18 Karel tasks for `karel_reference`, each as a function of the world after an action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.reference.karel_reference import PENALTY, Cell, Reward, Task, World


def task_of(row: Mapping[str, Any], world: World) -> Task:
    """Return the task of an ``init`` row for its world."""
    name: str = row["task"]
    base = name.removesuffix("Sparse")
    sparse = name != base
    params: Mapping[str, Any] = row["params"]
    match base:
        case "StairClimber" | "Maze":
            return _reach(params, world, sparse=sparse, stairs=base == "StairClimber")
        case "FourCorners":
            return _four_corners(world, sparse=sparse)
        case "TopOff":
            return _top_off(params, sparse=sparse)
        case "Harvester" | "CleanHouse":
            return _collect(world, allowed=None, sparse=sparse)
        case "PathFollow":
            legal = {divmod(index, world.width) for index in params["legal_pos"]}
            return _collect(world, allowed=legal, sparse=sparse)
        case "Seeder":
            return _plant(world, goal=36, forbidden=frozenset())
        case "WallAvoider":
            rows, columns = range(1, world.height - 1), range(1, world.width - 1)
            inside = {(r, c) for r in rows for c in columns}
            ring = {(r, c) for r, c in inside if r in (rows[0], rows[-1]) or c in (columns[0], columns[-1])}
            return _plant(world, goal=4, forbidden=frozenset(ring))
        case "DoorKey":
            return _door_key(params)
        case "OneStroke":
            return _one_stroke(world)
        case "Snake":
            return _snake(row, world)
    raise ValueError(name)


def _distance(one: Cell, other: Cell) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _reach(params: Mapping[str, Any], world: World, *, sparse: bool, stairs: bool) -> Task:
    goal: Cell = tuple(params["marker_position"])
    initial = params["initial_distance"]
    legal = {tuple(cell) for cell in params["valid_positions"]} if stairs else None
    previous = _distance(world.hero, goal)

    def reward(world: World) -> Reward:
        nonlocal previous
        distance = _distance(world.hero, goal)
        gain = (previous - distance) / initial
        previous = distance
        if world.hero == goal:
            return True, 1.0 if sparse else gain
        if legal is not None and world.hero not in legal:
            return PENALTY
        return False, 0.0 if sparse else gain

    return reward


def _four_corners(world: World, *, sparse: bool) -> Task:
    corners = [(r, c) for r in (1, world.height - 2) for c in (1, world.width - 2)]
    previous = 0

    def reward(world: World) -> Reward:
        nonlocal previous
        correct = sum(world.markers[corner] > 0 for corner in corners)
        if world.total() > correct:
            return PENALTY
        gain = (correct - previous) / 4
        previous = correct
        done = correct == 4
        return done, float(done) if sparse else gain

    return reward


def _top_off(params: Mapping[str, Any], *, sparse: bool) -> Task:
    cells = [tuple(cell) for cell in params["markers"]]
    previous = 0

    def reward(world: World) -> Reward:
        nonlocal previous
        counts = [world.markers[cell] for cell in cells]
        correct = counts.count(2)
        if 0 in counts or world.total() > correct + len(cells):
            return PENALTY
        gain = (correct - previous) / len(cells)
        previous = correct
        done = correct == len(cells)
        return done, float(done) if sparse else gain

    return reward


def _collect(world: World, *, allowed: set[Cell] | None, sparse: bool) -> Task:
    initial = previous = world.total()

    def reward(world: World) -> Reward:
        nonlocal previous
        total = world.total()
        if total > previous or (allowed is not None and world.hero not in allowed):
            return PENALTY
        if sparse:  # counts above the initial one are penalised, not every rise
            return total == 0, float(total == 0)
        gain = (previous - total) / initial
        previous = total
        return total == 0, gain

    return reward


def _plant(world: World, *, goal: int, forbidden: frozenset[Cell]) -> Task:
    previous = world.total()

    def reward(world: World) -> Reward:
        nonlocal previous
        total = world.total()
        wrong = any(count > 1 or (count and cell in forbidden) for cell, count in world.markers.items())
        if wrong or total < previous:
            return PENALTY
        gain = (total - previous) / goal
        previous = total
        return total == goal, gain

    return reward


def _door_key(params: Mapping[str, Any]) -> Task:
    key: Cell = tuple(params["key_cell"])
    end: Cell = tuple(params["end_marker_cell"])
    locked = True

    def reward(world: World) -> Reward:
        nonlocal locked
        total = world.total()
        if locked:
            if total > 2:
                return PENALTY
            if world.markers[key] == 0:
                locked = False
                world.walls -= {tuple(cell) for cell in params["door_cells"]}
                return False, 0.5
            return False, 0.0
        if total > 1:
            return (True, 0.5) if world.markers[end] == 2 else PENALTY
        return PENALTY if total == 0 else (False, 0.0)

    return reward


def _one_stroke(world: World) -> Task:
    previous = world.hero
    visited = 0

    def reward(world: World) -> Reward:
        nonlocal previous, visited
        if world.hero == previous:
            return False, 0.0
        world.walls.add(previous)
        previous = world.hero
        visited += 1
        return visited == 35, 1 / 35

    return reward


def _snake(row: Mapping[str, Any], world: World) -> Task:
    draws = iter([tuple(draw) for draw in row["spawn"]])
    food: Cell = tuple(row["params"]["marker_position"])
    size = row["params"]["body_size"]
    body = [world.hero]
    previous = world.hero

    def reward(world: World) -> Reward:
        nonlocal food, size, previous
        gain, done = 0.0, False
        head = world.hero
        if head == food:
            size += 1
            world.pick(food)
            gain = 1 / 20
            done = size == 22
            if not done:
                food = next(draw for draw in draws if draw not in body and draw != head)
                world.put(food)
        if head in body[:-1]:
            return PENALTY
        if head != body[-1]:
            world.put(body[-1])
            body.append(head)
            if len(body) > size:
                tail = body.pop(0)
                world.pick(tail)
        return done, gain

    return reward
