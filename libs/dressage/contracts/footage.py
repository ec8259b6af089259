"""How a vision model is shown an episode: an overview, and the decisive window at a rate that shows motion.

The bounds follow the providers' limits: at most 100 images a request (Anthropic), clips sampled at up to 24 frames per second
(Gemini), and 20 MB a request with its images in base64 (Gemini).
"""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2
from dressage.errors import InvalidArgument

DEFAULT_FPS, MAX_FPS = 10.0, 24.0
DEFAULT_WINDOW_SECONDS = 3.0
DEFAULT_VOTES = 3
OVERVIEW_FRAMES = 16
"""Frames of the whole episode: one page."""
MAX_WINDOW_FRAMES = 80
"""Frames of the decisive window: five pages. With the overview they are 96 images."""
MAX_ASK_FRAMES = 32
"""Frames of a question of the synthesiser: two pages; one second at `MAX_FPS`, or three at `DEFAULT_FPS`."""


@dataclass(frozen=True)
class Footage:
    """Options of the video judge, with their defaults.

    :param fps: frames per second of the decisive window.
    :param window_seconds: length of the decisive window.
    :param votes: independent replies for each rollout.
    :param motion_trail: whether the window's frames also show the robot at earlier times.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    """

    fps: float = DEFAULT_FPS
    window_seconds: float = DEFAULT_WINDOW_SECONDS
    votes: int = DEFAULT_VOTES
    motion_trail: bool = False
    camera: str = ""

    @classmethod
    def of(cls, options: session_pb2.VideoOptions, *, field: str = "video_options") -> Footage:
        """Return the options of a message; 0 means the default.

        :param field: name of the message's field, for errors.
        :raises InvalidArgument: if the window has more than `MAX_WINDOW_FRAMES` frames.
        """
        chosen = cls(
            fps=options.fps or DEFAULT_FPS,
            window_seconds=options.window_seconds or DEFAULT_WINDOW_SECONDS,
            votes=options.votes or DEFAULT_VOTES,
            motion_trail=options.motion_trail,
            camera=options.camera,
        )
        frames = chosen.window_frames
        if frames > MAX_WINDOW_FRAMES:
            longest = (MAX_WINDOW_FRAMES - 1) / chosen.fps
            raise InvalidArgument(
                field=f"{field}.window_seconds",
                value=chosen.window_seconds,
                expected=f"at most {longest:.3g} s at {chosen.fps:g} frames per second ({MAX_WINDOW_FRAMES} frames)",
            )
        return chosen

    @property
    def window_frames(self) -> int:
        """Number of frames of the decisive window, both ends included."""
        return int(self.window_seconds * self.fps + 1e-6) + 1
