"""Evaluator processes: what they play, and that a starved one in the background comes to the foreground."""

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dressage.envs.trajectory import Trajectory
from dressage.errors import ResourceExhausted
from dressage.policies import PolicyCard
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import ChannelClosed
from dressage_trainer.evaluation import evaluator, evaluator_pool
from dressage_trainer.evaluation.evaluator_pool import EvaluationSettings, EvaluatorPool
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.messages import EvaluateRequest, MemberPolicy
from dressage_trainer.ppo.networks import initial_weights

ENVIRONMENT = "InvertedPendulum-v5"
SEEDS = (1_000_000, 1_000_001)


def untrained() -> MemberPolicy:
    weights = initial_weights(
        observation_size=4, action_size=1, hidden_sizes=(8,), rng=np.random.default_rng(0), dtype=np.float32
    )
    card = PolicyCard(
        environment=ENVIRONMENT, observation_size=4, action_low=(-3.0,), action_high=(3.0,), hidden_sizes=(8,),
        normalize_observation=True, epsilon=1e-8, clip=10.0, environment_options={}, statistics={}, provenance={},
    )  # fmt: skip
    return MemberPolicy("m", 0, card.to_dict(), {**weights, "obs_mean": np.zeros(4), "obs_var": np.ones(4)})


def hopper() -> MemberPolicy:
    weights = initial_weights(
        observation_size=11, action_size=3, hidden_sizes=(8,), rng=np.random.default_rng(0), dtype=np.float32
    )
    card = PolicyCard(
        environment="Hopper-v5", observation_size=11, action_low=(-1.0,) * 3, action_high=(1.0,) * 3, hidden_sizes=(8,)
    )
    return MemberPolicy("m", 0, card.to_dict(), {**weights, "obs_mean": np.zeros(11), "obs_var": np.ones(11)})


async def play(tmp_path, *, background):
    """Returns of the stock reward, and the nice values of the processes that played."""
    tmp_path.mkdir(exist_ok=True)
    settings = EvaluationSettings(environment=ENVIRONMENT, options={}, reward_source="")
    sandboxes, pids = Sandboxes(tmp_path / "sandboxes"), []
    start = sandboxes.start

    def noted(*args):
        process = start(*args)
        pids.append(process.pid)
        return process

    sandboxes.start = noted
    async with EvaluatorPool(
        settings=settings, sandboxes=sandboxes, scratch=tmp_path, size=1, background=background
    ) as pool:
        episodes = await pool.evaluate(untrained(), SEEDS)
        priority = os.getpriority(os.PRIO_PROCESS, pids[-1])
    return [episode.stock_return for episode in episodes], len(pids), priority


def test_a_starved_background_evaluator_comes_to_the_foreground(tmp_path, monkeypatch):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    normal, processes, priority = asyncio.run(play(tmp_path / "a", background=False))
    assert len(normal) == len(SEEDS) and (processes, priority) == (1, own)
    monkeypatch.setattr(evaluator_pool, "_BACKGROUND_SECONDS", 0.01)
    starved, processes, priority = asyncio.run(play(tmp_path / "b", background=True))
    assert (processes, priority) == (2, own)
    assert starved == normal


def test_what_an_evaluator_plays_is_played_again_in_the_foreground(tmp_path):
    async def play_on(folder, *, interrupted):
        folder.mkdir()
        settings = EvaluationSettings(environment="Hopper-v5", options={}, reward_source="")
        sandboxes = Sandboxes(folder / "sandboxes")
        async with EvaluatorPool(
            settings=settings, sandboxes=sandboxes, scratch=folder, size=1, background=interrupted
        ) as pool:
            playing = asyncio.ensure_future(pool.evaluate(hopper(), range(40)))
            if interrupted:
                while pool._all[0]._process is None:
                    await asyncio.sleep(0.01)
                before = pool._all[0]._process
                await asyncio.sleep(0.3)
                assert not playing.done()
                await pool.foreground()
                assert before.poll() is not None
            return [episode.stock_return for episode in await asyncio.wait_for(playing, 60)]

    undisturbed = asyncio.run(play_on(tmp_path / "a", interrupted=False))
    assert asyncio.run(play_on(tmp_path / "b", interrupted=True)) == undisturbed and len(undisturbed) == 40


def test_the_pool_can_be_left_while_an_evaluator_plays(tmp_path):
    async def leave(folder):
        options = {"max_episode_steps": 1_000_000, "terminate_when_unhealthy": False}
        folder.mkdir()
        settings = EvaluationSettings(environment="Hopper-v5", options=options, reward_source="")
        sandboxes = Sandboxes(folder / "sandboxes")
        async with EvaluatorPool(
            settings=settings, sandboxes=sandboxes, scratch=folder, size=1, background=True
        ) as pool:
            playing = asyncio.ensure_future(pool.evaluate(hopper(), SEEDS))
            while pool._all[0]._process is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert not playing.done()
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        return pool

    for attempt in range(3):
        (evaluator,) = asyncio.run(leave(tmp_path / str(attempt)))._all
        assert evaluator._process is None


def test_an_evaluation_beyond_the_memory_names_the_option_to_lower(tmp_path, monkeypatch):
    small = replace(evaluator_pool.EVALUATOR, limits=Limits(memory_bytes=300 << 20, file_bytes=1 << 30))
    monkeypatch.setattr(evaluator_pool, "EVALUATOR", small)
    options = {"max_episode_steps": 1_000_000, "terminate_when_unhealthy": False}
    settings = EvaluationSettings(environment="Hopper-v5", options=options, reward_source="")

    async def play_on():
        sandboxes = Sandboxes(tmp_path / "sandboxes")
        async with EvaluatorPool(settings=settings, sandboxes=sandboxes, scratch=tmp_path, size=1) as pool:
            await pool.evaluate(hopper(), SEEDS)

    with pytest.raises(ResourceExhausted, match="lower max_episode_steps") as caught:
        asyncio.run(play_on())
    assert caught.value.reason == "EPISODE_TOO_LONG"


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of its own that has room for little."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "dressage-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no disk may be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_the_systems_own_error(small_disk):
    settings = EvaluationSettings(environment=ENVIRONMENT, options={}, reward_source="")

    async def play_on():
        sandboxes = Sandboxes(small_disk / "sandboxes")
        async with EvaluatorPool(settings=settings, sandboxes=sandboxes, scratch=small_disk, size=1) as pool:
            await pool.evaluate(untrained(), SEEDS)

    with pytest.raises(OSError, match="No space left on device"):
        asyncio.run(play_on())


def test_few_episodes_at_a_time_are_the_episodes(tmp_path, monkeypatch):
    class OneRequest:
        """A channel with one request that keeps the answers."""

        def __init__(self, request):
            self._requests, self.answers = [request], []

        def recv(self, *, timeout):
            if not self._requests:
                raise ChannelClosed("no more")
            return self._requests.pop()

        def send(self, message):
            self.answers.append(message["paths"])

    def returns(folder, steps_at_once):
        monkeypatch.setattr(evaluator, "_STEPS_AT_ONCE", steps_at_once)
        policy, path = untrained(), str(tmp_path / folder)
        request = EvaluateRequest(ENVIRONMENT, {}, policy.card, policy.weights, tuple(range(7)), path)
        channel = OneRequest(request.to_dict())
        evaluator.evaluate(channel)
        played = [Trajectory.load(Path(path)) for paths in channel.answers for path in paths]
        return [len(paths) for paths in channel.answers], [(t.seed, t.stock_return) for t in played]

    sizes, apart = returns("apart", 3_000)
    assert sizes == [3, 3, 1]
    assert returns("together", 50_000) == ([7], apart)
