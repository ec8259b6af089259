"""The pictures and the page of trained behaviours."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1.benchmark_service_pb2 import BenchmarkCase
from dressage.experiments.analysis import analyse
from dressage.experiments.files import read_matrix
from dressage.experiments.records import Record, record_of
from PIL import Image

from research import behaviours, page

REPOSITORY = Path(__file__).parents[2]
CONTENT: dict[str, Any] = {
    "name": "walks",
    "environments": [
        {"name": "walk", "id": "Hopper-v5", "intent": "hop forward"},
        {"name": "fast", "id": "Hopper-v5", "intent": "hop forward fast", "runs": 1},
    ],
    "methods": [{"name": "defaults", "method": "reward"}],
    "runs": 3,
}


def planned(tmp_path: Path, **changes: Any) -> list[BenchmarkCase]:
    path = tmp_path / "walks.yaml"
    path.write_text(yaml.safe_dump(CONTENT | changes))
    return read_matrix(path).request.cases


def result(cell: BenchmarkCase, *, score: float, confirmed: bool = True, seconds: float = 60) -> Record:
    """The result of a session that passed and was confirmed, or did not pass."""
    session = pb.Session(
        spec=cell.spec,
        state=pb.SESSION_STATE_SUCCEEDED if confirmed else pb.SESSION_STATE_EXHAUSTED,
        state_reason="" if confirmed else "all 3 iterations are used",
        best_score=0.99,
        env_steps=1_000,
    )
    session.spec.intent, session.spec.environment = cell.intent, cell.environment
    judgment = pb.Judgment(score=score, samples=[score], interval_low=score - 0.1, interval_high=score)
    if confirmed:
        session.confirmation.CopyFrom(judgment)
    else:
        session.best_judgment.CopyFrom(judgment)
        session.best_score = score
    session.start_time.FromSeconds(1_000)
    session.end_time.FromMilliseconds(round(1_000 * (1_000 + seconds)))
    return record_of(cell, session, [], experiment="walks", machine={})


def video(frames: int) -> bytes:
    """A video whose frames are ever brighter."""
    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for index in range(frames):
            picture = np.full((120, 160, 3), 255 * index // max(1, frames - 1), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return data.getvalue()


def test_a_strip_has_frames_from_the_first_to_the_last() -> None:
    picture = Image.open(io.BytesIO(behaviours.strip(video(31), count=4, height=60)))
    assert picture.size == (4 * 80 + 3 * 2, 60)
    brightness = [picture.getpixel((index * 82 + 40, 30))[0] for index in range(4)]  # type: ignore[index]
    assert brightness == pytest.approx([0, 85, 170, 255], abs=8)
    assert Image.open(io.BytesIO(behaviours.strip(video(2), count=4, height=60))).width == 2 * 80 + 2
    for data in (b"", b"no video"):
        with pytest.raises(ValueError, match="cannot be read"):
            behaviours.strip(data)


def test_the_page_counts_sessions_and_shows_a_passing_one(tmp_path: Path) -> None:
    outcomes = iter([(0.4, False, 900.0), (0.9, True, 70.0), (1.0, True, 90.0), (0.8, True, 110.0)])
    records = []
    for cell in planned(tmp_path):
        score, confirmed, seconds = next(outcomes)
        records.append(result(cell, score=score, confirmed=confirmed, seconds=seconds))
    path = tmp_path / "walks.md"
    path.write_text(f"# Walks\n\n{page.BEGIN}\nold\n{page.END}\n")
    (tmp_path / "walks").mkdir()
    (tmp_path / "walks" / "walk-defaults.jpg").write_text("a picture that the repository has")
    analysis = analyse(records, metric="score", reference="")
    page.write(analysis, [], tmp_path / "walks", path)
    text = path.read_text()
    walk, fast = (line for line in text.splitlines() if line.startswith("| Hopper-v5"))
    assert "| hop forward | 2/3 | 0.73 [0.40, 1.00] | 1 min 50 s | 1 min 30 s, 1 min 50 s | 1,000 |" in walk
    assert "| hop forward fast | 1/1 |" in fast and "- seed 0: all 3 iterations are used" in text
    assert "](walks/walk-defaults.jpg)" in text and "walks/fast-defaults.jpg" not in text and "old" not in text
    (shown, _) = behaviours.behaviours(analysis)
    assert shown.shown == records[2].cell, "the first that passed"
