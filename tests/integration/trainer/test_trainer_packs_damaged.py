"""A damaged pack, or one whose process ends or hangs: the evaluation fails with environment, pack and remedy.

Each test breaks a copy of the installed pack `robotics`, whose files are links to the original ones.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal

import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs.packs import installing, registry
from dressage.errors import FailedPrecondition, Unavailable
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.assignments.evaluate import evaluate
from dressage_trainer.evaluation import player_pool
from dressage_trainer.evaluation.player_pool import Player, sandbox_of
from dressage_trainer.lease.sandboxes import Sandboxes

from tests.integration.trainer.test_trainer_packs import LINEAR, MAZE, needs
from tests.unit.trainer.assignment_contexts import lease
from tests.unit.trainer.test_trainer_evaluate import assignment_of, one, seen

pytestmark = [
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
    needs("robotics"),
]
REMEDY = "dressage envs install robotics --reinstall"


def _link(source, target):
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """The packages of a copy of the pack, which is in use. Replace its files, do not write into them."""
    copy = tmp_path / "packs" / "robotics"
    shutil.copytree(registry.folder_of("robotics"), copy, symlinks=True, copy_function=_link)
    monkeypatch.setenv(registry.VARIABLE, str(copy.parent))
    return copy / registry.PACKAGES


def _replace(path, content):
    path.unlink()
    path.write_bytes(content)


def _without_the_simulator(packages):
    shutil.rmtree(packages / "gymnasium_robotics")


def _without_numpy(packages):
    shutil.rmtree(packages / "numpy")


def _that_raises(packages):
    _replace(packages / "gymnasium_robotics" / "__init__.py", b"raise RuntimeError('half an installation')")


def _with_a_truncated_library(packages):
    library = next((packages / "mujoco").glob("libmujoco.so*"))
    _replace(library, library.read_bytes()[:1000])


DAMAGES = {
    _without_the_simulator: "No module named 'gymnasium_robotics'",
    _without_numpy: "No module named 'numpy'",
    _that_raises: "RuntimeError: half an installation",
    _with_a_truncated_library: "SIGBUS",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_packages_are_named_at_once(damage, packages, tmp_path):
    damage(packages)
    result, candidates = asyncio.run(one(tmp_path / "work", assignment_of(LINEAR, environment=MAZE, policy__bias=True)))
    assert candidates == {}
    # Another attempt would find the same packages.
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT
    failure = result.failure.failure
    assert failure.reason == registry.DAMAGED and failure.remedy.endswith(REMEDY)
    for words in (MAZE, "environment pack robotics", DAMAGES[damage], REMEDY):
        assert words in failure.message


def test_deleted_packages_are_a_missing_installation(packages):
    shutil.rmtree(packages)
    with pytest.raises(FailedPrecondition, match=r"its packages are missing\. Install it .* install robotics"):
        registry.installed_packages("robotics")


@pytest.fixture
def player(tmp_path):
    """A player of the pack in use."""
    folder = tmp_path / "players"
    player = Player(Sandboxes(folder), sandbox_of("robotics"), pack="robotics")
    player.environment = MAZE
    with player.conversation():
        yield player
    player.end()
    assert list(folder.iterdir()) == []


@pytest.fixture
def packages_that_fail_later(packages):
    """Packages whose simulator raises in the fifth step."""
    maze = packages / "gymnasium_robotics" / "envs" / "maze" / "point_maze.py"
    text = maze.read_text("utf-8")
    assert text.count("def step(") == 1
    head, tail = text.split("def step(")
    signature, body = tail.split("\n", 1)
    broken = "        self.n = vars(self).get('n', 0) + 1\n        if self.n > 4: raise RuntimeError('a model is gone')"
    _replace(maze, f"{head}def step({signature}\n{broken}\n{body}".encode())


BEGIN = {"lockstep": "begin", "environment": MAZE, "options": {}, "seeds": [1], "observed": False}


def test_an_error_in_the_middle_of_an_episode_names_the_pack(packages_that_fail_later, player):
    reply = player.ask(BEGIN)
    for _ in range(4):
        reply = player.ask({"lockstep": "step", "actions": reply["observations"][:, :2]})
    message = rf"{MAZE}: .* pack robotics failed: .*RuntimeError: a model is gone.*{REMEDY}"
    with pytest.raises(Unavailable, match=message):
        player.ask({"lockstep": "step", "actions": reply["observations"][:, :2]})


def test_an_error_in_the_first_episodes_is_that_of_a_damaged_pack(packages_that_fail_later, tmp_path):
    result, _ = asyncio.run(one(tmp_path / "work", assignment_of(LINEAR, environment=MAZE, policy__bias=True)))
    assert result.failure.failure.reason == registry.DAMAGED
    assert "RuntimeError: a model is gone" in result.failure.failure.message


async def test_after_a_kill_the_next_attempt_plays_what_is_missing(tmp_path):
    def assignment():
        return assignment_of(LINEAR, [0.0] * 18, environment=MAZE, seeds=[5], policy__bias=True, cores=1)

    undisturbed = await one(tmp_path / "undisturbed", assignment())
    async with lease(tmp_path / "killed") as context:
        now = context(assignment())
        serving = asyncio.ensure_future(evaluate(now))
        while not now.work.items():  # the first candidate is reported, the second one plays
            await asyncio.sleep(0.01)
        (player,) = now.players._all
        while not player.busy:
            await asyncio.sleep(0.001)
        os.kill(player._process.pid, signal.SIGKILL)
        result = await asyncio.wait_for(serving, 120)
        assert result.failure.cause == pb.AssignmentFailure.CAUSE_INFRASTRUCTURE
        failure = result.failure.failure
        assert failure.reason == "PLAYER_FAILED" and "SIGKILL" in failure.message
        assert MAZE in failure.message and REMEDY in failure.message
        reported = dict(now.work.items())
        assert list(reported) == ["candidate/a"]
        again = assignment()
        again.finished_items.extend(reported)
        result = await evaluate(context(again))
        assert result.evaluate.episodes == 1  # that of the second candidate only
        played = {item.removeprefix("candidate/"): seen(report.candidate) for item, report in now.work.items().items()}
    assert played == {name: seen(candidate) for name, candidate in undisturbed[1].items()}


def test_a_simulator_that_hangs_is_ended_and_named(player, monkeypatch):
    reply = player.ask(BEGIN)
    process = player._process
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(player_pool, "_REPLY_SECONDS", 0.3)
    with pytest.raises(Unavailable, match=f"{MAZE}: .* pack robotics failed: no message arrived .*{REMEDY}"):
        player.ask({"lockstep": "step", "actions": reply["observations"][:, :2]})
    assert process.poll() is not None


def test_a_reinstallation_replaces_a_damaged_pack(packages, monkeypatch):
    _without_numpy(packages)

    def fetch(requirements, target, temporary, python):
        target.mkdir()
        (target / "whole").touch()

    monkeypatch.setattr(installing, "_fetch", fetch)
    pack = registry.pack("robotics")
    installing.install(pack)
    assert not (packages / "whole").exists()
    installing.install(pack, again=True)
    assert (packages / "whole").exists() and not registry.problem_of("robotics")
