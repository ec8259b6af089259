"""What judged, as text: `code and video (3 of 9 rollouts by video; 2 not judged by video)`."""

from __future__ import annotations

from typing import Protocol


class Judged(Protocol):
    """What a judgment states about its judges: a message or the typed result."""

    @property
    def judged_by(self) -> str:
        """`code`, `code and video` or `video`."""
        ...

    @property
    def without_video(self) -> str:
        """Why no video judge took part."""
        ...

    @property
    def rollouts(self) -> int:
        """Number of judged rollouts."""
        ...

    @property
    def video_rollouts(self) -> int:
        """Number of them that video judged."""
        ...

    @property
    def unjudged_rollouts(self) -> int:
        """Number of recorded rollouts that nothing judged."""
        ...

    @property
    def video_left_out(self) -> int:
        """Number of deciding rollouts that video did not judge."""
        ...


def judged_text(judged: Judged) -> str:
    """Return what judged, why not video, and how many rollouts are left out; empty if that is not known."""
    if not judged.judged_by:
        return ""
    parts = []
    if judged.video_rollouts:
        parts.append(f"{judged.video_rollouts} of {judged.rollouts} rollouts by video")
    elif judged.rollouts:
        parts.append(f"{judged.rollouts} rollout{'s' if judged.rollouts > 1 else ''}")
    if judged.without_video:
        parts.append(f"no video: {judged.without_video}")
    if judged.video_left_out:
        parts.append(f"{judged.video_left_out} left out by video")
    if judged.unjudged_rollouts:
        parts.append(f"{judged.unjudged_rollouts} not judged")
    return judged.judged_by + (f" ({'; '.join(parts)})" if parts else "")
