"""The typed result of a session: of `dressage.run`, `dressage.train` and `dressage.result`, and behind what commands print.

`Result` reads the session's message. Its rows of text are those of the terminal, the HTML report and notebooks.
"""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client
from dressage.errors import DressageError
from dressage.local.connection import Connection
from dressage.sdk.progress import is_search, target
from dressage.sdk.scores import CURVE_FILE, Cost, Judgment, LearningCurve, Report
from dressage.sdk.texts import (
    duration,
    mean_text,
    origin_text,
    quantity,
    queue_text,
    return_text,
    saved_text,
    score_text,
    seconds_waited,
    seconds_worked,
    short,
)

if TYPE_CHECKING:  # a policy is imported when one is loaded, because commands that list sessions need none
    from dressage.policies import Policy, ProgramPolicy
    from dressage.sdk.code_policy import SandboxedPolicy

_MAX_EMBEDDED_BYTES = 8 << 20
"""Larger files are named instead of embedded, because a notebook stores what it shows."""
_ROUNDING = 1e-9
"""By which the mean return of a program may differ from its target, as in `dressage.programs.families`."""

Row = tuple[str, str]


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


def state_name(state: pb.SessionState.ValueType) -> str:
    """Return the name of a state: `succeeded`, `exhausted`, …"""
    return pb.SessionState.Name(state).removeprefix("SESSION_STATE_").lower()


def state_now(session: pb.Session, connection: Connection) -> str:
    """Return the state, or `interrupted` if the session has not ended and no server continues it."""
    pending = session.state in (pb.SESSION_STATE_PENDING, pb.SESSION_STATE_RUNNING)
    return "interrupted" if pending and connection.read_only else state_name(session.state)


@dataclass(frozen=True, repr=False)
class Result:
    """A session's result. In a notebook it shows its score, its judgment, its learning curve and its video."""

    message: pb.Session
    """The session, as the API describes it."""
    connection: Connection
    """Where its artifacts are."""
    curve: LearningCurve | None = None
    """Its learning curve; None if nothing was trained."""
    reward_source: str = ""
    """Source of the best iteration's reward; empty for a method without one."""

    @property
    def session(self) -> str:
        """Name of the session, ``sessions/ID``."""
        return self.message.name

    @property
    def state(self) -> str:
        """``succeeded``, ``exhausted`` (see `message.exhaustion_reason`) or ``cancelled``; before its end ``pending`` or
        ``running``, and ``interrupted`` if no server continues it."""
        return state_now(self.message, self.connection)

    @property
    def state_reason(self) -> str:
        """Why the session is exhausted, cancelled or failed, as text."""
        return self.message.state_reason

    @property
    def intent(self) -> str:
        """The behaviour, in words."""
        return self.message.spec.intent

    @property
    def environment(self) -> str:
        """Id of the environment."""
        return short(self.message.spec.environment)

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.message.method or "reward"

    @property
    def score(self) -> float | None:
        """Score of the best iteration; for a search the mean return on report seeds. None before the first one, and for
        `dressage.train`."""
        if self.message.HasField("best_score"):
            return self.message.best_score
        return self.judgment.score if self.judgment is not None else None

    @property
    def goal(self) -> str:
        """The score to reach."""
        return self.message.goal

    @property
    def passed(self) -> bool:
        """Whether the session reached its goal, also on fresh seeds."""
        return self.message.state == pb.SESSION_STATE_SUCCEEDED and self.score is not None

    @cached_property
    def judgment(self) -> Judgment | None:
        """Of the best iteration; None without a judge."""
        return Judgment.of(self.message.best_judgment) if self.message.HasField("best_judgment") else None

    @cached_property
    def confirmation(self) -> Judgment | None:
        """Of the same policy on fresh seeds."""
        return Judgment.of(self.message.confirmation) if self.message.HasField("confirmation") else None

    @cached_property
    def report(self) -> Report | None:
        """Score on report seeds; None for methods that are no search."""
        return Report.of(self.message.report, target(self.message)) if self.message.HasField("report") else None

    @property
    def stock_return(self) -> float | None:
        """Mean return of the policy over its evaluation, by the environment's own reward."""
        return self.message.returns.mean if self.message.HasField("returns") else None

    @property
    def env_steps(self) -> int:
        """Environment steps of all iterations."""
        return self.message.env_steps

    @property
    def seconds(self) -> float | None:
        """From start to end, without the time in which nothing worked on it or it waited for an approval."""
        return seconds_worked(self.message)

    @property
    def cost(self) -> Cost:
        """What its model calls have cost."""
        cost = self.message.cost
        dollars = cost.dollars if cost.HasField("dollars") else None
        return Cost(cost.requests, cost.input_tokens, cost.output_tokens, dollars)

    @property
    def episodes(self) -> int:
        """Episodes of a search, without those of the report."""
        return self.message.episodes

    @property
    def candidates(self) -> int:
        """Candidates that a search evaluated."""
        return self.message.candidates

    @property
    def cache_hits(self) -> int:
        """Candidates whose score was known from an earlier evaluation."""
        return self.message.cache_hits

    @cached_property
    def policy(self) -> Policy | SandboxedPolicy | ProgramPolicy:
        """The best policy, loaded when it is first used.

        :raises FailedPrecondition: if the session has none.
        """
        from dressage.sdk.policy import best_policy, load_path

        return load_path(self.fetch(best_policy(self.message)))

    @cached_property
    def video(self) -> Path | None:
        """An MP4 of the best policy; None if the session has none. A server's is downloaded when it is first used, and exists
        until the program ends. That of the method program is drawn then: the report state with the median return.

        :raises FailedPrecondition: if a package is missing that draws it.
        """
        if self.message.best_video:
            return self.fetch(self.message.best_video)
        from dressage.policies import ProgramPolicy

        if self.method != "program" or not self.message.best_policy or not isinstance(self.policy, ProgramPolicy):
            return None
        from dressage.sdk.program_pictures import draw_policy

        path = new_download_folder() / "program.mp4"
        draw_policy(self.policy, path)
        return path

    @property
    def picture(self) -> Path | None:
        """The picture of the learning curve: the curve's, else an earlier one in the folder of the policy."""
        if self.curve is not None and self.curve.picture is not None:
            return self.curve.picture
        policy = self.message.best_policy
        return self.connection.local_path(f"{policy.rpartition('/')[0]}/{CURVE_FILE}") if policy else None

    def fetch(self, key: str) -> Path:
        """Return a file or a folder of the store; what is not on this machine is downloaded into a temporary folder.

        :raises NotFound: if there is no such artifact.
        :raises Unavailable: if the server cannot be reached.
        """
        local = self.connection.local_path(key)
        if local is not None:
            return local
        folder, server = new_download_folder(), self.connection.client.endpoint
        with Client.connect(server.url, server.token, trust=server.trust) as client:
            written = client.download_artifacts(key, folder)
        return written[0] if written == [folder / short(key)] else folder

    def __str__(self) -> str:
        score = "no score" if self.score is None else f"score {mean_text(self.score)}"
        return f"{self.session}: {self.state}, {score}, {self.environment}"

    def __repr__(self) -> str:
        return f"<Result {self}>"

    def _repr_html_(self) -> str:
        return _html(self)


async def collect(session: pb.Session, connection: Connection, curve: LearningCurve | None = None) -> Result:
    """Return the result of a session as it is now.

    :param curve: its learning curve, if it was loaded.
    """
    source = session.spec.reward.reward_source
    if session.best_iteration and not is_search(session):
        source = (await connection.client.get_iteration(session.best_iteration)).reward.source or source
    return Result(session, connection, curve, source)


def failure(session: pb.Session) -> SessionFailed:
    """Return the error of a session that failed."""
    message, remedy = session.failure.message or session.state_reason or "it failed", session.failure.remedy
    more = f"{'' if message.endswith('.') else '.'} {remedy}" if remedy and remedy not in message else ""
    text = f"{session.name} failed: {message}{more}"
    return SessionFailed(text, reason=session.failure.reason or None, metadata={"session": session.name})


# Rows of text.


def rows(result: Result) -> list[Row]:
    """Return state, scores, returns and effort as texts; the state is the first."""
    session = result.message
    threshold = session.spec.pass_threshold or None
    first, again = result.judgment, result.confirmation
    table: list[Row] = [("state", ": ".join(filter(None, (result.state, _why(result)))))]
    if result.report is not None:
        table.append(("score", _report_text(result, result.report)))
    elif first is not None:
        table.append(("score", _judgment_text(first, threshold)))
        table.append(("judged by", first.judged))
    elif session.HasField("best_score"):
        goal = f" (succeeds from {session.goal})" if session.goal else ""
        table.append(("score", f"{score_text(session.best_score)}{goal}"))
    if again is not None:
        table.append(("confirmed", _judgment_text(again, threshold)))
        table.append(("judged by", "" if first is not None and again.judged == first.judged else again.judged))
    table.append(("best", origin_text(session)))
    if session.HasField("returns"):
        table += _return_rows(session.returns)
    if is_search(session):
        table.append(("search", _effort(session)))
    if result.seconds is not None:
        steps = quantity(session.env_steps, "environment step")
        saved = f" ({saved_text(session.env_steps_saved)})" if session.env_steps_saved else ""
        waited = seconds_waited(session)
        idle = f", not counting {duration(waited)} of waiting" if waited >= 1 else ""
        table.append(("took", f"{duration(result.seconds)}{idle}, {steps}{saved}"))
    return [(label, text) for label, text in table if text]


def waits_for_approval(result: Result) -> bool:
    """Return whether a proposal of the session waits for an approval."""
    return result.message.phase == pb.PHASE_APPROVE and result.state in ("running", "interrupted")


def _why(result: Result) -> str:
    """Return the reasons of a state; message and remedy of a failure are left out where the text before contains them."""
    session = result.message
    texts = [
        queue_text(session.queue) if session.queue.place else "",
        "waits for your approval" if waits_for_approval(result) else "",
        session.state_reason,
    ]
    for part in (session.failure.message, session.failure.remedy):
        if not any(part in text for text in texts):
            texts.append(part)
    return "; ".join(text.rstrip(".") for text in texts if text)


def _judgment_text(judgment: Judgment, threshold: float | None) -> str:
    text = score_text(judgment.score, threshold=threshold)
    if judgment.spread is not None:
        text += f" ± {judgment.spread:.2f} over {quantity(len(judgment.samples), 'seed')}"
    if judgment.interval is not None:
        low, high = judgment.interval
        text += f", 95 % interval {low:.2f} to {high:.2f}"
    return f"{text} ({'passed' if judgment.passed else 'below the threshold'})"


def _report_text(result: Result, report: Report) -> str:
    """Return the score of a search: `498.2 over 100 episodes on report seeds, 95 % interval … (target 475: reached)`."""
    program = result.method == "program"
    text = f"{mean_text(report.mean)} over {quantity(len(report.returns), 'episode')}"
    text += f" on report {'states' if program else 'seeds'}"
    text += f", 95 % interval {mean_text(report.interval[0])} to {mean_text(report.interval[1])}"
    if report.target is None:
        return text
    reached = report.mean >= report.target - (_ROUNDING if program else 0.0)
    return f"{text} (target {report.target:g}: {'reached' if reached else 'not reached'})"


def _effort(session: pb.Session) -> str:
    cached = f", {session.cache_hits:,} {{}} from the cache" if session.cache_hits else ""
    if session.method == "program":
        return f"{quantity(session.candidates, 'program')}{cached.format('of them')}"
    candidates = quantity(session.candidates, "candidate")
    return f"{quantity(session.episodes, 'episode')}, {candidates}{cached.format('more')}"


def _return_rows(returns: pb.ReturnSummary) -> list[Row]:
    spread = f" ± {return_text(returns.std)} over seeds" if returns.std else ""
    random = f"random policy {return_text(returns.random_mean)}"
    table = [("return", f"{return_text(returns.mean)}{spread} ({random}), {quantity(returns.episodes, 'episode')}")]
    if returns.HasField("mean_speed"):
        has_random = returns.HasField("random_mean_speed")
        random = f" (random policy {returns.random_mean_speed:z.2f} m/s)" if has_random else ""
        table.append(("speed", f"{returns.mean_speed:z.2f} m/s{random}"))
    return table


# HTML for notebooks: self-contained, with picture and video embedded.


def _html(result: Result) -> str:
    """Return the HTML of a session's result."""
    criteria = result.judgment.criteria if result.judgment is not None else {}
    cost = [("cost", f"{result.cost.dollars:.4f} $")] if result.cost.dollars else []
    parts = [
        f"<h4>{escape(result.intent)} · {escape(result.environment)}</h4>",
        _table([("session", result.session), *rows(result), *cost]),
        _table([(name, f"{score:.2f}") for name, score in criteria.items()]),
        _image(result.picture),
        _video(result),
    ]
    return "\n".join(filter(None, parts))


def _table(cells: list[Row]) -> str:
    body = "".join(f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in cells)
    return f"<table>{body}</table>" if body else ""


def _image(path: Path | None) -> str:
    data = _base64(path)
    return f'<img alt="learning curve" style="max-width:640px" src="data:image/png;base64,{data}">' if data else ""


def _video(result: Result) -> str:
    try:
        path = result.video
    except DressageError as error:  # what is shown must not depend on a server that is gone
        return f"<p>video: {escape(error.message)}</p>"
    data = _base64(path)
    if data:
        return f'<video controls loop style="max-width:480px" src="data:video/mp4;base64,{data}"></video>'
    return f"<p>video: <code>{escape(str(path))}</code></p>" if path is not None else ""


def _base64(path: Path | None) -> str:
    if path is None or not path.is_file() or path.stat().st_size > _MAX_EMBEDDED_BYTES:
        return ""
    return base64.b64encode(path.read_bytes()).decode("ascii")
