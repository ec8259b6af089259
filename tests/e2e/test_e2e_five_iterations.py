"""`dressage run` with a model that has eyes, through five iterations: tools, judges that differ, a reward that is sent back, a
return to an earlier iteration, and a pass. Training, rendering and judging are real; only the provider is scripted."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from openai_server import Request, ScriptedServer
from serving import run_cli

SCRIPT = Path(__file__).parents[1] / "fakes" / "scripts" / "five_iterations.py"
INTENT = "balance the pole with the cart in the middle"


def run(data: Path, url: str) -> dict[str, object]:
    options = ("--env", "InvertedPendulum-v5", "--model", "openai/scripted-vision", "--api-base", url)
    size = ("--seeds", "1", "--steps", "24k", "--iterations", "5", "--yes", "--json", "--data-dir", str(data))
    done = run_cli("run", INTENT, *options, *size, timeout=1500, OPENAI_API_KEY="sk-scripted")
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.timeout(1600)
def test_five_iterations_to_a_pass(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    with ScriptedServer(script["SCRIPT"]()) as provider:
        result = run(tmp_path / "data", provider.url)
        provider.assert_exhausted()
        requests = list(provider.requests)
    session = result["session"]
    assert result["state"] == "succeeded" and result["confirmation"]["passed"]
    assert session["current_iteration"] == 5 and session["best_iteration"].endswith("/5")
    assert int(session["cost"]["requests"]) == len(requests)
    assert int(session["env_steps_saved"]) >= 24_000  # the third iteration's first reward was sent back untrained
    (folder,) = (tmp_path / "data/artifacts/sessions").iterdir()
    lineage_is_kept(folder)
    judges_differ_and_are_settled(folder, requests)


def lineage_is_kept(folder: Path) -> None:
    """The fifth iteration goes back to the second; each revision looked at the history before it spoke."""
    proposals = [json.loads((folder / f"iterations/{number}/proposal.json").read_text()) for number in range(1, 6)]
    parents = [int(entry.get("parent", "/0").rpartition("/")[2]) for entry in proposals]
    assert parents == [0, 1, 2, 3, 2]
    assert [entry.get("lesson_tier", "") for entry in proposals] == ["", "HARD", "SOFT", "SOFT", "STRONG"]
    for number in range(2, 6):
        assert list((folder / f"llm/iterations/{number}/reviser").glob("*-tool-*")), number


def judges_differ_and_are_settled(folder: Path, requests: list[Request]) -> None:
    """Code is content with a cart at the side, video is not, and what is measured and seen settles it."""
    judgments = [json.loads((folder / f"iterations/{number}/judgment.json").read_text()) for number in range(1, 6)]
    assert [entry.get("passed", False) for entry in judgments] == [False, False, False, False, True]
    for entry in judgments[1:4]:
        code, video = (verdict.get("score", 0.0) for verdict in entry["verdicts"])
        assert code > 0.8 and video == 0.5 and entry["score"] < 0.7
        assert "the video decided" in entry["diagnosis"] and "the_cart_is_in_the_middle" in entry["failure_tags"]
    synthesis = [r for r in requests if "You are the synthesiser" in r.text("system")]
    tool_messages = [m["content"] for r in synthesis for m in r.body["messages"] if m["role"] == "tool"]
    places = [json.loads(text)["mean_place_m"] for text in tool_messages if "mean_place_m" in text]
    assert len(places) >= 3 and min(places) > 0.15  # what the check measured of real episodes
    assert any("Near the end of its rail." in text and "frames_at" in text for text in tool_messages)
    votes = [r for r in requests if "You are the video judge" in r.text("system")]
    assert len(votes) % 3 == 0 and all(r.pictures()[0].startswith("data:image/png;base64,") for r in votes)
