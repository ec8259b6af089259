"""Learning curves: read from metrics, combined over seeds, drawn as a picture, found in the folder of the policy."""

from __future__ import annotations

import asyncio
import io
import json
import sys

import numpy as np
import pytest
from dressage.api.v1 import artifact_service_pb2, session_pb2
from dressage.cli import output, summary
from dressage.errors import NotFound
from dressage.installation import install_command
from dressage.local.connection import Connection
from dressage.sdk import curve_pictures, curves
from dressage.sdk.results import Result
from dressage.sdk.scores import CURVE_FILE
from hypothesis import given
from hypothesis import strategies as st

RUN = "sessions/s1/iterations/2/assignments/train/members"


TRAINING = "training, mean of the last 20 episodes, sampled actions"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Pictures without a policy's folder go to the current one."""
    monkeypatch.chdir(tmp_path)


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
    np.testing.assert_allclose(curve.mean, (np.array(curve.steps) - 100) / 100 + 1.0)
    np.testing.assert_allclose(curve.deviation, np.sqrt(2))
    assert curves.combine([]) is None
    assert curves.combine([a, (np.array([900.0]), np.array([1.0]))]) is None


def member(config, seed, returns):
    """A member as reported by a run; the stock return is 1000 more than the proposed return."""
    message = session_pb2.Member(name=f"{RUN}/{config}-s{seed}", config=config, seed=seed)
    for step, proposed in returns.items():
        message.evaluations.add(
            env_step=step, proposed_returns=proposed, returns=[value + 1000.0 for value in proposed]
        )
    return message


def test_evaluations_are_combined_at_the_steps_that_all_seeds_have():
    seeds = [
        member("a", 0, {100: [1.0, 3.0], 200: [5.0], 300: [9.0]}),
        member("a", 1, {100: [4.0], 200: [7.0]}),
        member("a", 2, {}),
    ]
    curve = curves.combine_evaluations(seeds)
    np.testing.assert_array_equal(curve.steps, [100.0, 200.0])
    np.testing.assert_allclose(curve.mean, [3.0, 6.0])
    np.testing.assert_allclose(curve.deviation, np.sqrt(2))
    assert curve.seeds == 2
    assert curves.combine_evaluations(seeds[2:]) is None
    assert curves.combine_evaluations([member("a", 0, {1: [1.0]}), member("a", 1, {2: [1.0]})]) is None


def stored(folder):
    for config, gain in (("default", 1.0), ("fast", 2.0)):
        for seed in range(2):
            path = folder / RUN / f"{config}-s{seed}" / "metrics.jsonl"
            path.parent.mkdir(parents=True)
            path.write_text(lines([(step, gain * step + seed) for step in range(0, 1000, 100)]))
    (folder / RUN / "fast-s1" / "policy").mkdir()


class Client:
    """Lists the files of a folder, and the members of an assignment."""

    def __init__(self, folder, members=()):
        self.folder, self.members = folder, members

    async def get_assignment(self, name):
        if not self.members:
            raise NotFound(name)
        assert name == RUN.removesuffix("/members")
        return session_pb2.Assignment(name=name, members=self.members)

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
def test_the_picture_is_next_to_the_policy_or_in_the_current_folder(tmp_path, monkeypatch, local):
    pytest.importorskip("matplotlib")
    stored(tmp_path / "store")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    connection = Connection(Client(tmp_path / "store"), "stack", tmp_path / "store" if local else None)
    seen = {}
    monkeypatch.setattr(
        curve_pictures, "draw_returns", lambda drawn, path, **rest: seen.update(drawn) or draw(drawn, path, **rest)
    )
    curve = asyncio.run(curve_pictures.learning_curve(session(), connection))
    path = curve.picture
    expected = tmp_path / "store" / RUN / "fast-s1" / "learning_curve.png"
    assert path == (expected if local else tmp_path / "here" / "learning-curve-s1.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    fast = seen["fast"].training
    assert list(seen) == ["default", "fast"] and fast.seeds == 2 and seen["fast"].evaluation is None
    np.testing.assert_allclose(fast.mean, 2 * np.array(fast.steps) + 0.5)
    assert curve.training == {config: returns.training for config, returns in seen.items()} and not curve.evaluation


draw = curve_pictures.draw_returns


@pytest.fixture
def figures(monkeypatch):
    """The figures that were written."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    seen, write = [], figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *rest, **more: seen.append(self) or write(self, *rest, **more))
    return seen


def texts(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_run_too_short_for_an_episode_to_end_shows_its_evaluations(tmp_path, figures):
    metrics = tmp_path / RUN / "fast-s1" / "metrics.jsonl"
    (metrics.parent / "policy").mkdir(parents=True)
    metrics.write_text(lines([(2048, None), (4096, None)]))
    connection = Connection(Client(tmp_path, [member("fast", 1, {2048: [1.0, 2.0], 4096: [4.0]})]), "stack", tmp_path)
    assert asyncio.run(curve_pictures.learning_curve(session(), connection)).picture.is_file()
    axes = figures[0].axes[0]
    ((points, *_),) = axes.containers
    np.testing.assert_array_equal(points.get_xydata(), [[2048, 1.5], [4096, 4.0]])
    assert points.get_linestyle() == "--" and len(axes.lines) == 1
    assert texts(figures[0]) == ["fast (1 seed)", "evaluation, deterministic policy"]
    assert axes.get_ylabel() == "episode return under the proposed reward"


def test_the_curves_of_an_earlier_checkpoint_are_its_training_s(tmp_path, figures):
    stored(tmp_path)
    chosen = session()
    for policy in (f"{RUN}/fast-s1/policies/450", "sessions/s1/iterations/1/assignments/select/members/fast-s1/policy"):
        (tmp_path / policy).mkdir(parents=True)
        chosen.best_policy, chosen.policy_origin.member = policy, f"{RUN}/fast-s1"
        curve = asyncio.run(curve_pictures.learning_curve(chosen, Connection(Client(tmp_path), "stack", tmp_path)))
        assert list(curve.training) == ["default", "fast"] and curve.picture.is_file()


def test_a_training_is_a_line_and_its_evaluations_points_of_its_colour(tmp_path, figures):
    stored(tmp_path)
    evaluated = [member(config, seed, {450: [3.0], 900: [4.0]}) for config in ("default", "fast") for seed in range(2)]
    asyncio.run(
        curve_pictures.learning_curve(session(), Connection(Client(tmp_path, evaluated[:3]), "stack", tmp_path))
    )
    axes = figures[0].axes[0]
    points = [container[0] for container in axes.containers]
    lines = [line for line in axes.lines if line not in points]
    assert [line.get_color() for line in lines] == [point.get_color() for point in points] == ["C0", "C1"]
    assert {point.get_linestyle() for point in points} == {"--"} and lines[0].get_linestyle() == "-"
    names = ["default (2 seeds)", "fast (seeds: 2 in training, 1 in evaluation)"]
    assert texts(figures[0]) == [
        *names,
        TRAINING,
        "evaluation, deterministic policy",
    ]
    assert "standard deviation over seeds" in axes.get_ylabel()


@pytest.fixture
def summarised(monkeypatch):
    """A function that returns the curve in the summary, as text and as JSON values."""
    from rich.console import Console

    def summarise(curve, connection):
        result = Result(session(), connection, curve)
        console = Console(width=400, file=io.StringIO())
        monkeypatch.setattr(output, "console", lambda: console)
        summary.print_result(result)
        shown = console.file.getvalue().splitlines()
        return [line.strip() for line in shown if line.startswith("curve")], summary.result_dict(result)

    return summarise


def test_a_line_states_that_there_is_nothing_to_draw(tmp_path, summarised):
    connection = Connection(Client(tmp_path, [member("fast", 1, {})]), "stack", tmp_path)
    picture = asyncio.run(curve_pictures.learning_curve(session(), connection))
    (line,), facts = summarised(picture, connection)
    assert line.split(maxsplit=1) == ["curve", "none, no episode ended and nothing was evaluated"]
    assert facts["learning_curve"] is None and facts["no_learning_curve"] == picture.missing


def test_without_matplotlib_or_policy_there_is_no_picture_and_no_error(tmp_path, monkeypatch, summarised):
    stored(tmp_path)
    connection = Connection(Client(tmp_path), "stack", tmp_path)
    assert asyncio.run(curve_pictures.learning_curve(session_pb2.Session(name="sessions/s1"), connection)) is None
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    picture = asyncio.run(curve_pictures.learning_curve(session(), connection))
    assert picture.picture is None and install_command("plots") in picture.missing
    (line,), _ = summarised(picture, connection)
    assert install_command("plots") in line
    # An earlier picture is named.
    before = tmp_path / RUN / "fast-s1" / CURVE_FILE
    before.write_bytes(b"picture")
    (line,), facts = summarised(picture, connection)
    assert str(before) in line and facts["no_learning_curve"] == ""


@pytest.mark.filterwarnings("error")
def test_a_title_in_letters_that_the_font_lacks_is_no_cause_for_a_warning(tmp_path):
    pytest.importorskip("matplotlib")
    curve = curves.combine([(np.array([1.0, 2.0]), np.array([0.0, 1.0]))])
    curve_pictures.draw_returns({"default": curves.Returns(curve)}, tmp_path / "c.png", title="\u8dd1\u5f97\u5feb")
    assert (tmp_path / "c.png").is_file()


def test_episodes_that_end_together_make_no_staircase():
    """Rows repeat a mean until episodes end, here at 300 and 600 steps."""
    rows = [
        {"step": step, "episode_return": float(step // 300), "episodes": step // 300 * 8}
        for step in range(100, 700, 100)
    ]
    steps, returns = curves.read_rows("\n".join(map(json.dumps, rows)))
    np.testing.assert_array_equal(steps, [100.0, 300.0, 600.0])
    np.testing.assert_array_equal(returns, [0.0, 1.0, 2.0])
    curve = curves.combine([(steps[1:], returns[1:])])
    assert np.all(np.diff(curve.mean) > 0)


def test_a_picture_has_the_environments_return_scores_and_references(tmp_path, figures):
    seeds = [member("fast", seed, {100: [3.0], 200: [4.0]}) for seed in range(2)]
    for each in seeds:
        for number, evaluation in enumerate(each.evaluations):
            evaluation.returns.append(10.0 * number)
            evaluation.rollouts.add(judgment=session_pb2.Judgment(score=0.5 + 0.1 * number))
    ended = session()
    ended.spec.pass_threshold = 0.7
    ended.returns.random_mean = -3.5
    ended.best_judgment.score = 0.6
    asyncio.run(curve_pictures.learning_curve(ended, Connection(Client(tmp_path, seeds), "stack", tmp_path)))
    proposed, stock, score = figures[0].axes
    assert [axes.get_ylabel().splitlines()[0] for axes in (stock, score)] == [
        "episode return under the environment's reward",
        "score of the judge",
    ]
    flat = [[line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1] for axes in figures[0].axes]
    assert flat == [[], [-3.5], [0.7]]
    assert [text.get_text() for axes in (proposed, stock, score) for text in axes.texts] == [
        "random policy",
        "pass threshold",
    ]
    np.testing.assert_allclose(score.containers[0][0].get_ydata(), [0.5, 0.6])
