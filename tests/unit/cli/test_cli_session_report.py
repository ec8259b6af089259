"""`dressage report SESSION --html`: one page with all its content, in which texts of people and models are text."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as pb
from dressage.cli.main import invoke

from tests.fakes.orchestrator import Background, FakeOrchestrator

MEMBER = "sessions/s1/iterations/1/assignments/train/members/base-s0"
VIDEO = f"{MEMBER}/videos/600000_median.mp4"
INTENT = "hop <script>alert(1)</script> & run"


class Page(HTMLParser):
    """Collects texts, tags and attributes that load something."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.chdir(tmp_path)
    session = pb.Session(name="sessions/s1", state=pb.SESSION_STATE_SUCCEEDED, best_video=VIDEO)
    session.best_iteration = "sessions/s1/iterations/1"
    session.spec.intent, session.spec.environment = INTENT, "environments/Hopper-v5"
    session.best_judgment.score = 0.86
    session.best_judgment.criteria.add(name="height <m>", score=0.5)
    fake = FakeOrchestrator()
    fake.sessions["sessions/s1"] = session
    fake.artifacts = {VIDEO: b"first video", f"{MEMBER}/videos/500_median.mp4": b"second video"}
    with Background(fake) as server:
        assert invoke(["report", "s1", "--html", "--address", server.address, "--out", "page.html"]) == 0
    parsed = Page()
    parsed.feed((tmp_path / "page.html").read_text("utf-8"))
    return parsed


def test_the_page_loads_nothing(page: Page) -> None:
    assert page.sources and all(source.startswith("data:") for source in page.sources)
    videos = [base64.b64decode(source.partition(",")[2]) for source in page.sources if source.startswith("data:video")]
    assert videos == [b"first video", b"second video"], "the best first"


def test_intent_scores_reward_and_lineage_are_on_the_page(page: Page) -> None:
    text = " ".join(page.texts)
    assert "script" not in page.tags and INTENT in text
    for expected in ("0.86", "height <m>", "Hopper-v5", "def reward", "effort was too dear", "Lineage"):
        assert expected in text, expected
    assert not re.search(r"https?://", text)


def test_a_page_is_of_one_session(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", "a", "b", "--html"]) == 2
    assert "one session" in capsys.readouterr().err
