"""Handles a request: loads the trajectory, has a worker render it, and stores the result."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
from dressage.artifacts import ArtifactStore, check_key
from dressage.errors import FailedPrecondition, NotFound
from prometheus_client import Counter, Histogram

from dressage_renderer.frames import FrameSamples
from dressage_renderer.options import RenderOptions, SamplingOptions
from dressage_renderer.pool import FramesJob, PosesJob, RenderJob, RenderPool
from dressage_renderer.video import RenderReport

LIST = "frames.json"
"""The list of sampled frames below a prefix, which is written last."""
FRAMES = Counter("dressage_render_frames_total", "Rendered frames.")
SECONDS = Histogram(
    "dressage_render_seconds",
    "Seconds that rendering and encoding one video took.",
    buckets=(0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600),
)


@dataclass(frozen=True)
class RenderResult:
    """A stored video.

    :param frame_keys: artifact keys of the single frames, in order of time.
    """

    report: RenderReport
    frame_keys: tuple[str, ...]


@dataclass(frozen=True)
class StoredFrames:
    """Artifact keys of sampled frames, and how they were sampled.

    :param clip: empty if there is none.
    :param reused: whether they existed before.
    """

    frames: tuple[str, ...]
    times: tuple[float, ...]
    pages: tuple[str, ...]
    clip: str
    fps: float
    start: float
    end: float
    episode_seconds: float
    reused: bool = False


class Renderer:
    """Renders recorded trajectories of an artifact store.

    :param timeout: deadline of one video in seconds.
    """

    def __init__(self, *, store: ArtifactStore, pool: RenderPool, threads: int, timeout: float) -> None:
        self._store = store
        self._pool = pool
        self._timeout = timeout
        # A separate executor: waiting for videos must not use up the threads that the process shares.
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="render")
        self._log = structlog.get_logger("dressage.renderer")

    async def render(
        self, *, trajectory: str, video: str, options: RenderOptions, frames_prefix: str, timeout: float | None
    ) -> RenderResult:
        """Render and store one video.

        :param trajectory: artifact key of the trajectory.
        :param video: artifact key of the video; it is complete or does not exist.
        :param frames_prefix: key prefix of the single frames; they are ``{prefix}/0000.png`` and so on.
        :param timeout: seconds until the caller's deadline; None for the service's own.
        :raises NotFound: for a missing trajectory.
        :raises InvalidArgument: for an invalid artifact key.
        """
        check_key(video)
        if prefix_given := frames_prefix.rstrip("/"):
            check_key(prefix_given)
        bound = self._timeout if timeout is None else min(timeout, self._timeout)
        cancelled = threading.Event()

        def work() -> RenderResult:
            return self._work(trajectory, video, options, frames_prefix, bound, cancelled)

        try:
            rendered = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        FRAMES.inc(rendered.report.frames)
        SECONDS.observe(rendered.report.seconds)
        self._log.info(
            "rendered", video=video, frames=rendered.report.frames, seconds=round(rendered.report.seconds, 2)
        )
        return rendered

    async def sample(
        self, *, trajectory: str, prefix: str, options: SamplingOptions, timeout: float | None
    ) -> StoredFrames:
        """Render and store frames below a prefix, once: a repeated request returns the stored ones.

        Journalled replies of models refer to their frames, which therefore must not change. The list (``frames.json``) is
        written last and never replaced, and no frame is overwritten.

        :raises NotFound: for a missing trajectory.
        :raises InvalidArgument: for an invalid artifact key.
        :raises FailedPrecondition: ``FRAMES_DIFFER`` if the prefix has frames with another sampling.
        """
        prefix = prefix.rstrip("/")
        check_key(prefix)
        bound = self._timeout if timeout is None else min(timeout, self._timeout)
        cancelled = threading.Event()

        def work() -> StoredFrames:
            return read_list(self._store, prefix, options) or self._sample(
                trajectory, prefix, options, bound, cancelled
            )

        try:
            frames = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        if not frames.reused:
            FRAMES.inc(len(frames.frames))
        self._log.info("sampled", prefix=prefix, frames=len(frames.frames), reused=frames.reused)
        return frames

    async def poses(self, *, trajectory: str, poses: str, timeout: float | None) -> int:
        """Compute and store the poses of a trajectory, see `dressage_renderer.poses`; return the number of states.

        :raises NotFound: for a missing trajectory.
        :raises InvalidArgument: for an invalid artifact key, or an environment that is not simulated by MuJoCo.
        """
        check_key(poses)
        bound = self._timeout if timeout is None else min(timeout, self._timeout)
        cancelled = threading.Event()

        def work() -> int:
            with tempfile.TemporaryDirectory(prefix="dressage-poses-") as name:
                source, target = Path(name) / "trajectory.npz", Path(name) / "poses.npz"
                source.write_bytes(self._fetch(trajectory))
                rows = self._pool.poses(PosesJob(source, target), timeout=bound, cancelled=cancelled)
                self._store.put_file(poses, target)
                return rows

        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        self._log.info("computed poses", poses=poses, states=rows)
        return rows

    def _sample(
        self, trajectory: str, prefix: str, options: SamplingOptions, timeout: float, cancelled: threading.Event
    ) -> StoredFrames:
        with tempfile.TemporaryDirectory(prefix="dressage-frames-") as name:
            folder = Path(name)
            source, pictures = folder / "trajectory.npz", folder / "pictures"
            pictures.mkdir()
            source.write_bytes(self._fetch(trajectory))
            sampled = self._pool.sample(FramesJob(source, pictures, options), timeout=timeout, cancelled=cancelled)
            return store_frames(self._store, prefix, sampled, options)

    async def close(self) -> None:
        """Stop the workers."""
        await asyncio.to_thread(self._pool.close)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _work(
        self,
        trajectory: str,
        video: str,
        options: RenderOptions,
        prefix: str,
        timeout: float,
        cancelled: threading.Event,
    ) -> RenderResult:
        with tempfile.TemporaryDirectory(prefix="dressage-render-") as name:
            folder = Path(name)
            source, target, stills = folder / "trajectory.npz", folder / "video.mp4", folder / "frames"
            stills.mkdir()
            source.write_bytes(self._fetch(trajectory))
            job = RenderJob(source, target, options, stills if prefix and options.stills else None)
            report = self._pool.render(job, timeout=timeout, cancelled=cancelled)
            keys = tuple(f"{prefix.rstrip('/')}/{path.name}" for path in report.stills)
            for key, path in zip(keys, report.stills, strict=True):
                self._store.put_file(key, path)
            # The video is stored last, so that its frames exist when it does.
            self._store.put_file(video, target)
        return RenderResult(report, keys)

    def _fetch(self, key: str) -> bytes:
        try:
            return self._store.get(key)
        except NotFound as error:
            message = f"trajectory: there is no recorded trajectory {key!r} in the artifact store"
            raise NotFound(message, reason="TRAJECTORY_NOT_FOUND", metadata={"trajectory": key}) from error


def read_list(store: ArtifactStore, prefix: str, options: SamplingOptions) -> StoredFrames | None:
    """Return the frames below a prefix; None if there are none yet.

    :raises FailedPrecondition: ``FRAMES_DIFFER`` if they have another sampling.
    """
    try:
        entry = json.loads(store.get(f"{prefix}/{LIST}"))
    except NotFound:
        return None
    if entry.get("fingerprint") != options.fingerprint():
        message = f"prefix: {prefix!r} has frames with another sampling; use another prefix"
        raise FailedPrecondition(message, reason="FRAMES_DIFFER", metadata={"prefix": prefix})
    fields = entry["stored"]
    lists = {name: tuple(fields[name]) for name in ("frames", "times", "pages")}
    return StoredFrames(**(fields | lists | {"reused": True}))


def store_frames(store: ArtifactStore, prefix: str, sampled: FrameSamples, options: SamplingOptions) -> StoredFrames:
    """Store sampled frames; of two concurrent writers, the first one's frames are kept."""

    def put(path: Path) -> str:
        key = f"{prefix}/{path.name}"
        store.put(key, path.read_bytes(), if_absent=True)
        return key

    frames = StoredFrames(
        frames=tuple(put(path) for path in sampled.frames),
        times=sampled.times,
        pages=tuple(put(path) for path in sampled.pages),
        clip=put(sampled.clip) if sampled.clip else "",
        fps=sampled.fps,
        start=sampled.start,
        end=sampled.end,
        episode_seconds=sampled.episode_seconds,
    )
    entry = {"fingerprint": options.fingerprint(), "stored": asdict(frames)}
    if store.put(f"{prefix}/{LIST}", json.dumps(entry, indent=1).encode(), if_absent=True):
        return frames
    return read_list(store, prefix, options) or frames
