"""Typed results of sessions, as `dressage.run`, `dressage.train` and `dressage.result` return and notebooks show them."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client
from dressage.client.endpoints import Endpoint
from dressage.errors import DressageError, FailedPrecondition
from dressage.local.connection import Connection
from dressage.policies import Policy, ProgramPolicy
from dressage.sdk.durations import seconds_worked
from dressage.sdk.judged import judged_text
from dressage.sdk.policy import load_path
from dressage.sdk.progress import is_search, target
from dressage.sdk.texts import mean_text

if TYPE_CHECKING:
    from dressage.sdk.code_policy import SandboxedPolicy
    from dressage.sdk.curve_data import Curve
    from dressage.sdk.search_curves import SearchPoint

_NO_POLICY = "NO_POLICY"
_MAX_EMBEDDED_BYTES = 8 << 20
"""Larger files are named instead of embedded, because a notebook stores what it shows."""
_COLOURS = {"succeeded": "#1a7f37", "exhausted": "#9a6700", "cancelled": "#9a6700", "failed": "#cf222e"}


@dataclass(frozen=True)
class Judgment:
    """A judge's result."""

    score: float
    """0 to 1; the mean over seeds where there are several."""
    passed: bool
    criteria: Mapping[str, float]
    """Score of each criterion, 0 to 1."""
    samples: tuple[float, ...]
    """Score of each seed."""
    interval: tuple[float, float] | None
    """95 % interval of the score; None without samples."""
    diagnosis: str
    judged_by: str = ""
    """``code``, ``code and video`` or ``video``."""
    without_video: str = ""
    """Why no video judge took part; empty if one did."""
    rollouts: int = 0
    """Number of judged rollouts."""
    video_rollouts: int = 0
    """Number of them that video judged."""
    unjudged_rollouts: int = 0
    """Number of recorded rollouts that the score leaves out, because nothing judged them."""
    video_left_out: int = 0
    """Number of deciding rollouts that video did not judge."""


@dataclass(frozen=True)
class Cost:
    """What calls of language models have cost."""

    requests: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    """None where the price of a model is unknown."""


@dataclass(frozen=True)
class Series:
    """Returns of one config under the trained reward, over its seeds."""

    steps: list[float]
    """Environment steps of each member."""
    mean: list[float]
    deviation: list[float]
    """Standard deviation over seeds; 0 for one seed."""
    seeds: int


@dataclass(frozen=True)
class SearchSeries:
    """Scores of a search, mean returns on search seeds, in the order of its iterations or improvements."""

    episodes: list[int]
    """Episodes until then."""
    tokens: list[int]
    """Tokens of model calls until then."""
    score: list[float]
    best: list[float]
    """Highest score until then."""

    @classmethod
    def of(cls, points: Sequence[SearchPoint]) -> SearchSeries:
        """The points as lists."""
        return cls(
            episodes=[point.episodes for point in points],
            tokens=[point.tokens for point in points],
            score=[point.score for point in points],
            best=[point.best for point in points],
        )


@dataclass(frozen=True)
class Report:
    """Score of a search's policy on report seeds, which the search did not use."""

    mean: float
    """Mean return."""
    interval: tuple[float, float]
    """95 % bootstrap interval of the mean."""
    returns: tuple[float, ...]
    """Return of each episode."""
    lengths: tuple[int, ...]
    """Steps of each episode."""
    first_seed: int
    """Seed of the first episode; further seeds are consecutive."""
    confirmations: int
    """Candidates of the session that were played on report seeds."""
    target: float | None
    """Mean return from which the session succeeds."""


@dataclass(frozen=True)
class LearningCurve:
    """The learning curves of a training, by config."""

    training: Mapping[str, Series]
    """Episodes of training, with sampled actions."""
    evaluation: Mapping[str, Series]
    """Evaluations of the deterministic policy."""
    picture: Path | None
    """The curves as a PNG file; None where matplotlib is not installed, or nothing can be drawn."""
    search: SearchSeries | None = None
    """Scores of a search; None for other methods."""

    def _repr_html_(self) -> str:
        return _image(self.picture) or "no picture"


class SessionFailed(DressageError):
    """A session ended without a policy because something failed."""

    default_reason = "SESSION_FAILED"


@cache
def _downloads() -> tempfile.TemporaryDirectory[str]:
    """The folder of this program's downloads; it is removed when the program ends."""
    return tempfile.TemporaryDirectory(prefix="dressage-")


def new_download_folder() -> Path:
    """Make a folder that exists until the program ends."""
    return Path(tempfile.mkdtemp(dir=_downloads().name))


@dataclass(frozen=True)
class Files:
    """Where the artifacts of a session are."""

    store: Path | None
    """Folder of the artifact store, if it is on this machine."""
    server: Endpoint

    def fetch(self, key: str) -> Path:
        """Return a file or a folder of the store; what is not on this machine is downloaded into a temporary folder.

        :raises NotFound: if there is no such artifact.
        :raises Unavailable: if the server cannot be reached.
        """
        if self.store is not None and (self.store / key).exists():
            return self.store / key
        folder = new_download_folder()
        with Client.connect(self.server.url, self.server.token, trust=self.server.trust) as client:
            written = client.download_artifacts(key, folder)
        return written[0] if written == [folder / key.rpartition("/")[2]] else folder


@dataclass(frozen=True)
class Result:
    """A session's result. In a notebook it shows its score, its judgment, its learning curve and its video."""

    session: str
    """Name of the session, ``sessions/ID``."""
    state: str
    """``succeeded``, ``exhausted`` (a budget or the iterations are used up), ``cancelled``; ``running`` with ``detach``."""
    state_reason: str
    intent: str
    environment: str
    method: str
    score: float | None
    """Score of the best iteration; for a search the mean return on report seeds. None before the first one, and for
    `dressage.train`."""
    goal: str
    """The score to reach."""
    passed: bool
    """Whether the session reached its goal, also on fresh seeds."""
    judgment: Judgment | None
    """Of the best iteration; None without a judge."""
    confirmation: Judgment | None
    """Of the same policy on fresh seeds."""
    reward_source: str
    """Source of the best iteration's reward; empty for a method without one."""
    stock_return: float | None
    """Mean return of the policy over its evaluation, by the environment's own reward."""
    env_steps: int
    seconds: float | None
    """From start to end, without the time in which nothing worked on it or it waited for an approval."""
    cost: Cost
    curve: LearningCurve | None
    policy_key: str = field(repr=False)
    """Key of the policy's bundle in the artifact store; empty if there is none."""
    video_key: str = field(repr=False)
    files: Files = field(repr=False)
    report: Report | None = None
    """Score on report seeds; None for methods that are no search."""
    episodes: int = 0
    """Episodes of a search, without those of the report."""
    candidates: int = 0
    """Candidates that a search evaluated."""
    cache_hits: int = 0
    """Candidates whose score was known from an earlier evaluation."""

    @cached_property
    def policy(self) -> Policy | SandboxedPolicy | ProgramPolicy:
        """The best policy, loaded when it is first used.

        :raises FailedPrecondition: if the session has none.
        """
        if not self.policy_key:
            raise FailedPrecondition(f"{self.session} has no policy (it is {self.state})", reason=_NO_POLICY)
        return load_path(self.files.fetch(self.policy_key))

    @cached_property
    def video(self) -> Path | None:
        """An MP4 of the best policy; None if the session has none. A server's is downloaded when it is first used, and exists
        until the program ends. That of the method program is drawn then: the report state with the median return.

        :raises FailedPrecondition: if a package is missing that draws it.
        """
        if self.video_key:
            return self.files.fetch(self.video_key)
        if self.method != "program" or not self.policy_key or not isinstance(self.policy, ProgramPolicy):
            return None
        from dressage.sdk.program_pictures import draw_policy

        path = new_download_folder() / "program.mp4"
        draw_policy(self.policy, path)
        return path

    def __str__(self) -> str:
        score = "no score" if self.score is None else f"score {mean_text(self.score)}"
        return f"{self.session}: {self.state}, {score}, {self.environment}"

    def _repr_html_(self) -> str:
        return _result_html(self)


def collect(session: pb.Session, client: Client, connection: Connection, curve: LearningCurve | None) -> Result:
    """The typed result of a session as it is now."""
    judgment = _judgment(session.best_judgment) if session.HasField("best_judgment") else None
    score = session.best_score if session.HasField("best_score") else judgment.score if judgment else None
    return Result(
        session=session.name,
        state=pb.SessionState.Name(session.state).removeprefix("SESSION_STATE_").lower(),
        state_reason=session.state_reason,
        intent=session.spec.intent,
        environment=session.spec.environment.removeprefix("environments/"),
        method=session.method or "reward",
        score=score,
        goal=session.goal,
        passed=session.state == pb.SESSION_STATE_SUCCEEDED and score is not None,
        judgment=judgment,
        confirmation=_judgment(session.confirmation) if session.HasField("confirmation") else None,
        reward_source=_reward_source(session, client),
        stock_return=session.returns.mean if session.HasField("returns") else None,
        env_steps=session.env_steps,
        seconds=seconds_worked(session),
        cost=_cost(session.cost),
        curve=curve,
        policy_key=session.best_policy,
        video_key=session.best_video,
        files=Files(connection.artifacts, connection.client.endpoint),
        report=_report(session) if session.HasField("report") else None,
        episodes=session.episodes,
        candidates=session.candidates,
        cache_hits=session.cache_hits,
    )


def failure(session: pb.Session) -> SessionFailed:
    """The error of a session that failed."""
    message, remedy = session.failure.message or session.state_reason or "it failed", session.failure.remedy
    more = f"{'' if message.endswith('.') else '.'} {remedy}" if remedy and remedy not in message else ""
    text = f"{session.name} failed: {message}{more}"
    return SessionFailed(text, reason=session.failure.reason or None, metadata={"session": session.name})


def series(curves: Mapping[str, Curve | None]) -> dict[str, Series]:
    """Curves as plain lists, by config; those that do not exist are left out."""
    return {
        name: Series(curve.steps.tolist(), curve.mean.tolist(), curve.deviation.tolist(), curve.seeds)
        for name, curve in curves.items()
        if curve is not None
    }


def _judgment(message: pb.Judgment) -> Judgment:
    samples: Sequence[float] = message.samples
    return Judgment(
        score=message.score,
        passed=message.passed,
        criteria={criterion.name: criterion.score for criterion in message.criteria},
        samples=tuple(samples),
        interval=(message.interval_low, message.interval_high) if samples else None,
        diagnosis=message.diagnosis,
        judged_by=message.judged_by,
        without_video=message.without_video,
        rollouts=message.rollouts,
        video_rollouts=message.video_rollouts,
        unjudged_rollouts=message.unjudged_rollouts,
        video_left_out=message.video_left_out,
    )


def _report(session: pb.Session) -> Report:
    message = session.report
    return Report(
        mean=message.mean,
        interval=(message.interval_low, message.interval_high),
        returns=tuple(message.returns),
        lengths=tuple(message.lengths),
        first_seed=message.first_seed,
        confirmations=message.confirmations,
        target=target(session),
    )


def _cost(message: pb.Cost) -> Cost:
    dollars = message.dollars if message.HasField("dollars") else None
    return Cost(message.requests, message.input_tokens, message.output_tokens, dollars)


def _reward_source(session: pb.Session, client: Client) -> str:
    if not session.best_iteration or is_search(session):
        return session.spec.reward.reward_source
    return client.get_iteration(session.best_iteration).reward.source or session.spec.reward.reward_source


# HTML for notebooks: self-contained, with picture and video embedded.


def _result_html(result: Result) -> str:
    """The HTML of a session's result."""
    score = "no score" if result.score is None else f"score {mean_text(result.score)}"
    goal = f" (goal {escape(result.goal)})" if result.goal and result.score is not None else ""
    colour = _COLOURS.get(result.state, "inherit")
    facts = [
        f"{result.env_steps:,} environment steps",
        *([f"{result.seconds:.0f} s"] if result.seconds is not None else []),
        *([f"{result.episodes:,} episodes, {result.candidates:,} candidates"] if result.candidates else []),
        *([f"return {result.stock_return:.1f}"] if result.stock_return is not None else []),
        *([f"{result.cost.dollars:.4f} $"] if result.cost.dollars else []),
    ]
    parts = [
        f"<h4>{escape(result.intent)} · {escape(result.environment)}</h4>",
        f'<p><b style="color:{colour}">{escape(result.state)}</b>, <b>{score}</b>{goal}<br>{", ".join(facts)}<br>'
        f"<code>{escape(result.session)}</code></p>",
        _judgments(result),
        _report_html(result.report),
        _image(result.curve.picture) if result.curve is not None else "",
        _video(result),
    ]
    return "\n".join(filter(None, parts))


def _judgments(result: Result) -> str:
    judgments = {"score": result.judgment, "fresh seeds": result.confirmation}
    shown = {name: judgment for name, judgment in judgments.items() if judgment is not None}
    if not shown:
        return ""
    criteria = dict.fromkeys(name for judgment in shown.values() for name in judgment.criteria)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *shown))
    rows = [("score", [_with_interval(judgment) for judgment in shown.values()])]
    rows += [("judged by", [escape(judged_text(judgment)) for judgment in shown.values()])]
    rows += [(name, [_number(judgment.criteria.get(name)) for judgment in shown.values()]) for name in criteria]
    body = "".join(
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, cells in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _report_html(report: Report | None) -> str:
    if report is None:
        return ""
    low, high = map(mean_text, report.interval)
    return f"<p>{len(report.returns)} episodes on report seeds, 95 % interval {low} to {high}</p>"


def _with_interval(judgment: Judgment) -> str:
    text = f"{judgment.score:.2f}"
    if judgment.interval is not None:
        text += f" ({judgment.interval[0]:.2f} to {judgment.interval[1]:.2f})"
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _image(path: Path | None) -> str:
    """A PNG file as an ``img`` element; empty if there is none."""
    data = _embedded(path)
    return f'<img alt="learning curve" style="max-width:640px" src="data:image/png;base64,{data}">' if data else ""


def _video(result: Result) -> str:
    try:
        path = result.video
    except DressageError as error:  # what is shown must not depend on a server that is gone
        return f"<p>video: {escape(error.message)}</p>"
    data = _embedded(path)
    if data:
        return f'<video controls loop style="max-width:480px" src="data:video/mp4;base64,{data}"></video>'
    return f"<p>video: <code>{escape(str(path))}</code></p>" if path is not None else ""


def _embedded(path: Path | None) -> str:
    if path is None or not path.is_file() or path.stat().st_size > _MAX_EMBEDDED_BYTES:
        return ""
    return base64.b64encode(path.read_bytes()).decode("ascii")
