"""A strip of pictures from a video: frames of one episode side by side, for pages that cannot show videos.

PyAV and Pillow (extra ``renderer``) are imported on use.
"""

from __future__ import annotations

import importlib.util
import io
from typing import Any

_GAP = 2
_QUALITY = 80


def available() -> bool:
    """Return whether the packages that read videos are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("av", "PIL"))


def strip(video: bytes, *, count: int = 8, height: int = 120) -> bytes:
    """Return a JPEG with frames at equal distances from the first to the last one.

    :param video: an MP4 file.
    :param count: number of frames; a shorter video has fewer.
    :param height: of the picture, in pixels.
    :raises ValueError: if the video cannot be read or has no frame.
    """
    import av

    try:
        with av.open(io.BytesIO(video), "r") as container:
            frames = [_small(frame, height) for frame in container.decode(video=0)]
    except av.FFmpegError as error:
        raise ValueError(f"the video cannot be read: {error}") from error
    if not frames:
        raise ValueError("the video has no frame")
    chosen = sorted({round(index * (len(frames) - 1) / max(1, count - 1)) for index in range(count)})
    return _joined([frames[index] for index in chosen])


def _small(frame: Any, height: int) -> Any:
    picture = frame.to_image()
    return picture.resize((max(1, round(picture.width * height / picture.height)), height))


def _joined(pictures: list[Any]) -> bytes:
    from PIL import Image

    width = sum(picture.width for picture in pictures) + _GAP * (len(pictures) - 1)
    whole = Image.new("RGB", (width, pictures[0].height), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + _GAP
    data = io.BytesIO()
    whole.save(data, "JPEG", quality=_QUALITY, optimize=True)
    return data.getvalue()
