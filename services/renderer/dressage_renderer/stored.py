"""FrameSamples frames in the artifact store: written once below a prefix, and last the list of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dressage.artifacts import ArtifactStore
from dressage.errors import FailedPrecondition, NotFound

from dressage_renderer.frames import FrameSamples
from dressage_renderer.sampling import SamplingOptions

LIST = "frames.json"


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
    stored = entry["stored"]
    lists = {name: tuple(stored[name]) for name in ("frames", "times", "pages")}
    return StoredFrames(**(stored | lists | {"reused": True}))


def store_frames(store: ArtifactStore, prefix: str, sampled: FrameSamples, options: SamplingOptions) -> StoredFrames:
    """Store sampled frames; of two concurrent writers, the first one's frames are kept."""

    def put(path: Path) -> str:
        key = f"{prefix}/{path.name}"
        store.put(key, path.read_bytes(), if_absent=True)
        return key

    stored = StoredFrames(
        frames=tuple(put(path) for path in sampled.frames),
        times=sampled.times,
        pages=tuple(put(path) for path in sampled.pages),
        clip=put(sampled.clip) if sampled.clip else "",
        fps=sampled.fps,
        start=sampled.start,
        end=sampled.end,
        episode_seconds=sampled.episode_seconds,
    )
    entry = {"fingerprint": options.fingerprint(), "stored": asdict(stored)}
    if store.put(f"{prefix}/{LIST}", json.dumps(entry, indent=1).encode(), if_absent=True):
        return stored
    return read_list(store, prefix, options) or stored
