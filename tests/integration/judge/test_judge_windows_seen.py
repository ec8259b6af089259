"""What a vision model is shown of a fast motion: a scripted model counts the frames that it receives and their times."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import av
import numpy as np
import pytest
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts import ArtifactStore, open_store
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from judge_stack import ENV, KEY, ROLLOUT, fenced, stack
from openai_server import Answer, Call, Request, ScriptedServer

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240), pytest.mark.usefixtures("litellm_is_imported")]

FLIP = (31.2, 31.6)
"""Seconds in which the cheetah turns once: a flip of 0.4 s in an episode of 50 s."""

LISTED = [("flips once", "turning"), ("keeps running", "throughout"), ("lands on its feet", "turning")]
CRITERIA = {"criteria": [{"title": t, "description": "…", "moment": moment} for t, moment in LISTED]}
LISTS = Answer(fenced(CRITERIA), when="You list what a judge has to look for")
BLIND_JUDGE = """
def judge(trajectory, np):
    return {"score": 0.9, "criteria": {"runs": 0.9}, "evidence": {"mean_speed": 1.0}}
"""
_SHOT = re.compile(r"frames (\d+) to (\d+), from second ([\d.]+) to ([\d.]+), ([\d.e+-]+) a second")


def flipping() -> Trajectory:
    """An episode of 50 s that is calm but for one flip."""
    shipped = load_check_trajectories(ENV)["motionless"][0]
    time = np.arange(1001) * 0.05
    angle = 2 * np.pi * np.clip((time - FLIP[0]) / (FLIP[1] - FLIP[0]), 0, 1)
    qpos = np.tile(np.asarray(shipped.qpos)[0], (1001, 1))
    qpos[:, 0], qpos[:, 1], qpos[:, 2] = 0.5 * time, 0.6 * np.sin(angle / 2), angle
    velocity = np.gradient(angle, time)
    fields = {name: np.repeat(np.asarray(column)[:1], 1001, axis=0) for name, column in shipped.fields.items()} | {
        "time": time,
        "pitch_velocity": velocity,
        "z_position": qpos[:, 1],
    }
    qvel = np.tile(np.asarray(shipped.qvel)[0] * 0 + 0.1, (1001, 1))
    action, reward = np.zeros((1000, 6)), np.zeros(1000)
    return replace(shipped, fields=fields, qpos=qpos, qvel=qvel, action=action, reward=reward, metadata={})


@dataclass(frozen=True)
class Seen:
    """Times of the frames that a request shows, the overview's and the window's, and its number of images."""

    overview: np.ndarray
    window: np.ndarray
    images: int

    @property
    def in_flip(self) -> int:
        """Number of frames within the flip."""
        every = np.concatenate([self.overview, self.window])
        return len({round(t, 3) for t in every if FLIP[0] <= t <= FLIP[1]})


def seen(request: Request) -> Seen:
    shots = []
    for first, last, start, end, rate in _SHOT.findall(request.text("user")):
        count = int(last) - int(first) + 1
        shots.append(np.linspace(float(start), float(end), count))
        assert (count - 1) / max(float(end) - float(start), 1e-9) == pytest.approx(float(rate), rel=0.02)
    return Seen(shots[0] if len(shots) > 1 else np.zeros(0), shots[-1], len(request.pictures()))


def votes(records: list[Seen]) -> Callable[[Request], str]:
    """A vision model that answers met only if it is shown four frames of the flip, and unknown otherwise."""

    def reply(request: Request) -> str:
        records.append(seen(request))
        flip = "met" if records[-1].in_flip >= 4 else "unknown"
        entries = [
            {"title": title, "seen": "…", "status": flip if moment == "turning" else "met"} for title, moment in LISTED
        ]
        return fenced({"criteria": entries, "diagnosis": "it flips" if flip == "met" else "it runs"})

    return reply


def judges(records: list[Seen]) -> Answer:
    return Answer(reply=votes(records), when="You are the video judge", repeat=True)


def put(folder: Path) -> ArtifactStore:
    store = open_store(str(folder / "artifacts"))
    path = folder / "flip.npz"
    flipping().save(path)
    store.put_file(ROLLOUT, path)
    return store


def options(**values: object) -> pb.VideoSelection:
    return pb.VideoSelection(rollouts=[ROLLOUT], options=session_pb2.VideoOptions(**values))


async def test_a_flip_of_0_4_s_in_50_s_is_shown_in_four_frames(tmp_path: Path) -> None:
    put(tmp_path)
    records: list[Seen] = []
    with ScriptedServer([LISTS, judges(records)], key=KEY) as server:
        async with stack(tmp_path, server, video_dialects={"openai/*": "frames"}) as running:
            (judged,) = (await running.judge(judge_source=BLIND_JUDGE, video=options())).rollouts
    assert len(records) == 3  # votes
    for each in records:
        assert (len(each.overview), len(each.window), each.images) == (16, 31, 47)
        assert each.window[0] < FLIP[0] and FLIP[1] < each.window[-1] and each.in_flip >= 4
        assert (each.overview[0], each.overview[-1]) == (0, 50)
        assert np.diff(each.window).max() <= 0.1 + 1e-6
    assert judged.judgment.score == pytest.approx(0.6 * 0.9 + 0.4) and judged.merge.agreed
    prompt = server.requests[1].text("user")
    assert "Decisive window: frames 17 to 47" in prompt and "“flips once” (turning)" in prompt


async def test_rate_window_votes_and_camera_are_the_requested_ones(tmp_path: Path) -> None:
    put(tmp_path)
    records: list[Seen] = []
    chosen = options(fps=20, window_seconds=1, votes=1, camera="track", motion_trail=True)
    with ScriptedServer([LISTS, judges(records)], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            await running.judge(judge_source=BLIND_JUDGE, video=chosen)
        prompt = server.requests[1].text("user")
    assert [len(each.window) for each in records] == [21] and records[0].in_flip >= 8
    assert records[0].images == 1 + 2  # pages of 16: one of the overview, two of the window
    assert "camera track" in prompt and "pale ghosts" in prompt and "pages 2 to 3" in prompt


async def test_gemini_samples_each_frame_of_the_clips_once(tmp_path: Path) -> None:
    store = put(tmp_path)
    requests: list[Request] = []

    def reply(request: Request) -> str:
        requests.append(request)
        entries = [{"title": title, "seen": "…", "status": "met"} for title, _ in LISTED]
        return fenced({"criteria": entries, "diagnosis": "it flips"})

    script = [LISTS, Answer(reply=reply, when="You are the video judge", repeat=True)]
    with ScriptedServer(script, key=KEY) as server:
        async with stack(tmp_path, server) as running:
            (judged,) = (
                await running.judge(judge_source=BLIND_JUDGE, model="gemini/gemini-2.5-flash", video=options())
            ).rollouts
    assert not judged.notices, judged.notices
    clips, shown = requests[0].clips(), seen(requests[0])
    assert [fps for _, fps in clips] == [pytest.approx(15 / 50), pytest.approx(10)]
    frames = {info.key for info in store.list(f"{ROLLOUT.rpartition('/rollouts/')[0]}/frames/") if "/0" in info.key}
    for (data, fps), times in zip(clips, (shown.overview, shown.window), strict=True):
        folder = next(key.rpartition("/")[0] for key in frames if _count(frames, key) == len(times))
        drawn = [_picture(store.get(f"{folder}/{place:04d}.png")) for place in range(len(times))]
        sampled = _sample(data, fps)
        # The frames as a provider samples them are the rendered ones, each once and in order.
        assert [_closest(picture, drawn) for picture in sampled] == list(range(len(times)))


async def test_a_question_of_one_second_gets_frames_that_show_the_motion(tmp_path: Path) -> None:
    put(tmp_path)
    records: list[Seen] = []
    questions: list[Request] = []

    def answer(request: Request) -> str:
        questions.append(request)
        return fenced({"answer": "it turns once", "certain": True})

    settled = [{"name": "runs", "source": "code", "status": "met", "evidence": "speed"}] + [
        {"name": title, "source": "video", "status": "met", "evidence": "frames 1 to 11"} for title, _ in LISTED
    ]
    one_second = Call("ask_video", {"question": "does it flip?", "start": 31, "end": 32, "fps": 1})
    many = Call("ask_video", {"question": "and in all?", "start": 0, "end": 50, "fps": 24})
    script = [
        LISTS,
        Answer(reply=votes(records), when="You are the video judge", repeat=True),
        Answer(calls=(one_second, many), when="the synthesiser"),
        Answer(reply=answer, when="You look at pictures", repeat=True),
        Answer(fenced({"criteria": settled, "decided_by": "video", "reasoning": "it turns"}), when="the synthesiser"),
    ]
    # A window in which nothing happens: the criteria of the flip stay unknown, and the synthesiser looks again.
    elsewhere = options(votes=1)
    elsewhere.start = 5.0
    with ScriptedServer(script, key=KEY) as server:
        async with stack(tmp_path, server) as running:
            (judged,) = (await running.judge(judge_source=BLIND_JUDGE, video=elsewhere)).rollouts
        server.assert_exhausted()
    short, whole = sorted((seen(request) for request in questions), key=lambda each: each.window[-1] - each.window[0])
    assert len(short.window) == 11 and short.in_flip >= 4 and len(whole.window) == 32
    assert records[0].in_flip < 4 and judged.judgment.score == pytest.approx(1.0)
    unknown = [entry.score for entry in judged.judgment.criteria if entry.name == "flips once"]
    assert unknown == [1.0] and not judged.notices


async def test_what_was_not_shown_is_unknown_and_never_not_met(tmp_path: Path) -> None:
    put(tmp_path)
    records: list[Seen] = []
    elsewhere = options(votes=1)
    elsewhere.start = 5.0
    refuses = Answer("I cannot help with that.", when="the synthesiser", repeat=True)
    with ScriptedServer([LISTS, judges(records), refuses], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            (judged,) = (await running.judge(judge_source=BLIND_JUDGE, video=elsewhere)).rollouts
    assert [entry.name for entry in judged.judgment.criteria] == ["runs", "keeps running"]
    video = judged.judgment.verdicts[1]
    assert video.score == 1.0 and "flips once: unknown" in video.comment
    assert judged.judgment.passed and not judged.judgment.failure_tags


def _count(keys: set[str], key: str) -> int:
    folder = key.rpartition("/")[0]
    return sum(other.startswith(f"{folder}/0") for other in keys)


def _picture(data: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=np.float32)


def _sample(data: bytes, fps: float) -> list[np.ndarray]:
    """Frames of a clip at times 0, 1/fps, …, as a provider samples it."""
    with av.open(io.BytesIO(data)) as container:
        decoded = [
            (float(frame.time), frame.to_ndarray(format="rgb24").astype(np.float32))
            for frame in container.decode(video=0)
        ]
    end = decoded[-1][0]
    moments = np.arange(int(end * fps + 1e-6) + 1) / fps
    times = np.array([time for time, _ in decoded])
    return [decoded[int(np.searchsorted(times, moment + 1e-6, side="right")) - 1][1] for moment in moments]


def _closest(picture: np.ndarray, drawn: list[np.ndarray]) -> int:
    return int(np.argmin([np.abs(picture - other).mean() for other in drawn]))
