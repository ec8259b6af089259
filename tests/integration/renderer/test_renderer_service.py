"""The renderer as a service: real gRPC, real worker processes, an artifact store in a folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import av
import grpc
import gymnasium
import numpy as np
import psutil
import pytest
from dressage.api.internal.v1 import renderer_service_pb2 as pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as rpc
from dressage.artifacts import ArtifactStore, open_store
from dressage.envs.trajectory import load_check_trajectories
from dressage.errors import DeadlineExceeded, DressageError, InvalidArgument, NotFound
from dressage.rpc_errors import from_rpc
from dressage.serving import channels
from dressage_renderer.settings import Settings
from dressage_renderer.wiring import start
from prometheus_client import REGISTRY

from tests.waiting import until

TRAJECTORY = "sessions/s1/iterations/1/assignments/train/members/a-s1/rollouts/100_median.npz"


@dataclass
class Stack:
    stub: rpc.RendererServiceStub
    store: ArtifactStore


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    store = open_store(str(tmp_path / "artifacts"))
    source = tmp_path / "t.npz"
    load_check_trajectories("HalfCheetah-v5")["random"][0].save(source)
    store.put_file(TRAJECTORY, source)
    service = await start(Settings(store_url=str(tmp_path / "artifacts"), workers=2, grace_seconds=1))
    async with channels.connect(service.address) as channel:
        yield Stack(rpc.RendererServiceStub(channel), store)
    await service.stop()


def request(**changes: object) -> pb.RenderRequest:
    values = {"trajectory": TRAJECTORY, "video": "v/a.mp4", "width": 96, "height": 96, "end": 1.0, "overlay": True}
    return pb.RenderRequest(**{**values, **changes})


async def failure(stack: Stack, message: pb.RenderRequest, *, timeout: float = 60) -> DressageError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stack.stub.Render(message, timeout=timeout)
    return from_rpc(caught.value)


async def test_two_concurrent_videos_do_not_block_the_event_loop(stack: Stack, tmp_path: Path) -> None:
    before = REGISTRY.get_sample_value("dressage_render_frames_total") or 0.0
    longest, last, running = 0.0, time.monotonic(), True

    async def heartbeat() -> None:
        nonlocal longest, last
        while running:
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    beat = asyncio.create_task(heartbeat())
    requests = [request(video=f"v/{name}.mp4", frames_prefix=f"v/{name}", frames=2) for name in ("a", "b")]
    replies = await asyncio.gather(*(stack.stub.Render(each, timeout=60) for each in requests))
    running = False
    await beat
    assert longest < 1.0
    for reply, name in zip(replies, ("a", "b"), strict=True):
        assert (reply.video, reply.frames) == (f"v/{name}.mp4", 31)
        assert list(reply.frame_keys) == [f"v/{name}/0000.png", f"v/{name}/0001.png"]
        assert all(stack.store.get(key).startswith(b"\x89PNG") for key in reply.frame_keys)
        (tmp_path / "back.mp4").write_bytes(stack.store.get(reply.video))
        with av.open(str(tmp_path / "back.mp4")) as container:
            assert len(list(container.decode(video=0))) == 31
    assert REGISTRY.get_sample_value("dressage_render_frames_total") == before + 62


async def test_bad_requests_are_refused_with_the_problem(stack: Stack) -> None:
    missing = await failure(stack, request(trajectory="sessions/s1/none.npz"))
    assert isinstance(missing, NotFound)
    assert missing.reason == "TRAJECTORY_NOT_FOUND"
    assert "sessions/s1/none.npz" in missing.message
    window = await failure(stack, request(start=3.0, end=2.0))
    assert isinstance(window, InvalidArgument)
    assert window.field == "end"
    late = await failure(stack, request(start=4000.0, end=0))
    assert isinstance(late, InvalidArgument)
    assert late.field == "start"
    assert "before the episode's end" in late.message
    assert (await failure(stack, request(video="../escape.mp4"))).reason == "INVALID_ARTIFACT_KEY"
    stack.store.put("broken.npz", b"no zip at all")
    assert "not a trajectory file" in (await failure(stack, request(trajectory="broken.npz"))).message
    assert not stack.store.exists("v/a.mp4")


def render_workers() -> list[psutil.Process]:
    """The service's running worker processes."""
    processes = psutil.process_iter(["ppid", "cmdline"])
    return [
        p
        for p in processes
        if p.info["ppid"] == os.getpid() and "dressage_renderer.worker" in (p.info["cmdline"] or ())
    ]


async def test_killed_workers_are_replaced_and_the_video_is_rendered(stack: Stack) -> None:
    rendering = asyncio.ensure_future(stack.stub.Render(request(end=4.0), timeout=60))
    for worker in await until(render_workers):
        os.kill(worker.pid, signal.SIGKILL)
    assert (await rendering).frames > 30


async def test_a_deadline_stops_the_work(stack: Stack) -> None:
    late = await failure(stack, request(width=2000, height=2000, end=10.0), timeout=1.0)
    assert isinstance(late, DeadlineExceeded)
    await until(lambda: not render_workers(), seconds=5)
    assert not stack.store.exists("v/a.mp4")


async def test_sampled_frames_are_rendered_once_and_do_not_change(stack: Stack, tmp_path: Path) -> None:
    sampling = pb.RenderFramesRequest(
        trajectory=TRAJECTORY, prefix="f/a", fps=4, start=0.5, end=2.0, width=64, height=64,
        overlay=True, motion_trail=True, pages=True, clip=True,
    )  # fmt: skip
    first = await stack.stub.RenderFrames(sampling, timeout=60)
    before = {key: stack.store.get(key) for key in [*first.frames, *first.pages, first.clip]}
    again = await stack.stub.RenderFrames(sampling, timeout=60)
    assert list(first.times) == pytest.approx([0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]) and first.fps == pytest.approx(4)
    assert list(first.frames) == [f"f/a/{place:04d}.png" for place in range(7)] == list(again.frames)
    assert (first.reused, again.reused) == (False, True)
    assert {key: stack.store.get(key) for key in before} == before
    assert len({before[key] for key in first.frames}) == 7  # the robot moves
    (tmp_path / "clip.mp4").write_bytes(before[first.clip])
    with av.open(str(tmp_path / "clip.mp4")) as container:
        seconds = sum(1 for _ in container.decode(video=0)) / float(container.streams.video[0].average_rate)
    assert seconds == pytest.approx(7 / 4, rel=0.1)  # as fast as the episode
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stack.stub.RenderFrames(pb.RenderFramesRequest(trajectory=TRAJECTORY, prefix="f/a"), timeout=60)
    assert from_rpc(caught.value).reason == "FRAMES_DIFFER"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stack.stub.RenderFrames(
            pb.RenderFramesRequest(trajectory=TRAJECTORY, prefix="f/b", start=900), timeout=60
        )
    assert from_rpc(caught.value).reason == "INVALID_ARGUMENT"


async def test_poses_are_stored_as_the_simulator_computes_them(stack: Stack, tmp_path: Path) -> None:
    key = TRAJECTORY.replace(".npz", ".poses.npz")
    answer = await stack.stub.RecordPoses(pb.RecordPosesRequest(trajectory=TRAJECTORY, poses=key), timeout=60)
    episode = load_check_trajectories("HalfCheetah-v5")["random"][0]
    assert (answer.poses, answer.states) == (key, episode.num_steps + 1)
    (tmp_path / "poses.npz").write_bytes(stack.store.get(key))
    with np.load(tmp_path / "poses.npz") as stored:
        schema = json.loads(stored["schema"].tobytes())
        assert [shape["kind"] for shape in schema["shapes"]] == ["plane"] + ["capsule"] * 8 and schema["travels"]
        env = gymnasium.make("HalfCheetah-v5").unwrapped
        for row in (0, 7, episode.num_steps):
            env.set_state(episode.qpos[row], episode.qvel[row])
            assert np.allclose(stored["position"][row], env.data.geom_xpos, atol=1e-5)
            assert np.allclose(stored["centre"][row], env.data.subtree_com[1], atol=1e-5)
        env.close()


async def test_an_environment_without_mujoco_has_no_poses(stack: Stack, tmp_path: Path) -> None:
    source = tmp_path / "pole.npz"
    load_check_trajectories("CartPole-v1")["random"][0].save(source)
    stack.store.put_file("sessions/s1/pole.npz", source)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stack.stub.RecordPoses(
            pb.RecordPosesRequest(trajectory="sessions/s1/pole.npz", poses="p.npz"), timeout=60
        )
    assert isinstance(from_rpc(caught.value), InvalidArgument) and "MuJoCo" in caught.value.details()
