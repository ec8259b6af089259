"""Learning curves: read as written, combined over seeds, drawn as a picture, found beside the policy."""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np
import pytest
from dressage.api.v1 import artifact_service_pb2, session_pb2
from dressage.cli import curves
from dressage.cli.connection import Connection
from hypothesis import given
from hypothesis import strategies as st

RUN = "sessions/s1/iterations/2/runs/train/members"


def lines(points):
    return "".join(json.dumps({"step": step, "episode_return": value, "update": 1}) + "\n" for step, value in points)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.one_of(st.none(), st.floats(-1e9, 1e9))), max_size=20))
def test_rows_are_read_as_written(points):
    steps, values = curves.read_rows(lines(points) + '{"step": 5, "episode_ret')
    assert list(zip(steps, values, strict=True)) == [(float(s), v) for s, v in points if v is not None]


def test_seeds_are_combined_where_all_have_points():
    a = (np.array([100.0, 200.0, 400.0]), np.array([0.0, 1.0, 3.0]))
    b = (np.array([200.0, 300.0]), np.array([3.0, 4.0]))
    curve = curves.combine([a, b, (np.zeros(0), np.zeros(0))])
    assert (curve.steps[0], curve.steps[-1], curve.seeds) == (200.0, 300.0, 2)
    np.testing.assert_allclose(curve.mean, (curve.steps - 100) / 100 + 1.0)
    np.testing.assert_allclose(curve.deviation, np.sqrt(2))
    assert curves.combine([]) is None
    assert curves.combine([a, (np.array([900.0]), np.array([1.0]))]) is None


def stored(folder):
    for config, gain in (("default", 1.0), ("fast", 2.0)):
        for seed in range(2):
            path = folder / RUN / f"{config}-s{seed}" / "metrics.jsonl"
            path.parent.mkdir(parents=True)
            path.write_text(lines([(step, gain * step + seed) for step in range(0, 1000, 100)]))
    (folder / RUN / "fast-s1" / "policy").mkdir()


class Client:
    """Lists the files of a folder."""

    def __init__(self, folder):
        self.folder = folder

    async def list_artifacts(self, prefix):
        for path in sorted(self.folder.rglob("*")):
            key = path.relative_to(self.folder).as_posix()
            if path.is_file() and key.startswith(prefix):
                yield artifact_service_pb2.Artifact(key=key, size=path.stat().st_size)

    async def read_artifact(self, key):
        yield (self.folder / key).read_bytes()


def session():
    spec = session_pb2.SessionSpec(intent="cost $x$ and {y}\n" * 30, environment="environments/HalfCheetah-v5")
    return session_pb2.Session(name="sessions/s1", spec=spec, best_policy=f"{RUN}/fast-s1/policy")


@pytest.mark.parametrize("local", [True, False])
def test_a_picture_lies_beside_the_policy_or_here(tmp_path, monkeypatch, local):
    pytest.importorskip("matplotlib")
    stored(tmp_path / "store")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    connection = Connection(Client(tmp_path / "store"), "stack", tmp_path / "store" if local else None)
    seen = {}
    monkeypatch.setattr(curves, "draw", lambda found, path, **rest: seen.update(found) or draw(found, path, **rest))
    path = asyncio.run(curves.save(session(), connection))
    expected = tmp_path / "store" / RUN / "fast-s1" / "learning_curve.png"
    assert path == (expected if local else tmp_path / "here" / "learning-curve-s1.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(seen) == ["default", "fast"] and seen["fast"].seeds == 2
    np.testing.assert_allclose(seen["fast"].mean, 2 * seen["fast"].steps + 0.5)


draw = curves.draw


def test_without_matplotlib_or_policy_there_is_no_picture_and_no_error(tmp_path, monkeypatch):
    stored(tmp_path)
    connection = Connection(Client(tmp_path), "stack", tmp_path)
    assert asyncio.run(curves.save(session_pb2.Session(name="sessions/s1"), connection)) is None
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert asyncio.run(curves.save(session(), connection)) is None


@pytest.mark.filterwarnings("error")
def test_a_title_in_letters_that_the_font_lacks_is_no_cause_for_a_warning(tmp_path):
    pytest.importorskip("matplotlib")
    curve = curves.combine([(np.array([1.0, 2.0]), np.array([0.0, 1.0]))])
    curves.draw({"default": curve}, tmp_path / "c.png", title="\u8dd1\u5f97\u5feb")
    assert (tmp_path / "c.png").is_file()
