"""The scripts for end-to-end tests hold what they claim, and run from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.contracts.source import lint_judge, lint_reward
from dressage.envs.cards import load_card
from dressage.envs.trajectory import load_check_trajectories
from dressage_llm_agent.roles.registry import role_of
from openai_server import load_script
from paraphrases import PENDULUM

FAKES = Path(__file__).parents[2] / "fakes"
SCRIPT = FAKES / "scripts" / "repair_then_revise.py"
BRIEF = pb.Brief(intent="balance the pole", environment=PENDULUM)
TASKS = {
    "reward": pb.RewardAuthorTask(brief=BRIEF),
    "judge": pb.JudgeAuthorTask(brief=BRIEF, pass_threshold=0.7),
    "fixed": pb.RewardAuthorTask(brief=BRIEF, repair=pb.CodeRepair(source="x", round=1)),
    "revision": pb.ReviserTask(brief=BRIEF, history=[v1.Iteration(number=1)]),
}


@pytest.fixture
def results():
    """The script's replies, read by their roles."""
    texts = [answer.text for answer in load_script(SCRIPT) if answer.text and "reviewer" not in answer.when]
    return {name: role_of(task).parse(text, task) for (name, task), text in zip(TASKS.items(), texts, strict=True)}


def total(source, rows):
    names: dict = {}
    exec(source, names)
    state = SimpleNamespace(pole_angle=np.linspace(0, 0.2, rows), x_position=np.zeros(rows))
    return names["reward"](state, np.zeros((rows, 1)), state, SimpleNamespace(), np)


def test_the_scripts_story(results):
    card = load_card(PENDULUM)
    for name in ("reward", "fixed", "revision"):
        assert lint_reward(results[name].source, card) == []
    assert lint_judge(results["judge"].source, card) == []
    assert any(np.shape(term) != (3,) for term in total(results["reward"].source, 3).values())
    poor, good = (sum(total(results[name].source, 3).values()) for name in ("fixed", "revision"))
    assert poor[0] < 0 < poor[2] and good[0] > good[1] > good[2]
    names: dict = {}
    exec(results["judge"].source, names)
    for kind, episodes in load_check_trajectories(PENDULUM).items():
        assert all(names["judge"](episode, np)["score"] < 0.3 for episode in episodes), kind


def test_the_server_runs_as_a_program():
    command = [sys.executable, str(FAKES / "openai_server.py"), "--script", str(SCRIPT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        body = {"model": "scripted", "messages": [{"role": "system", "content": "You are the judge author of …"}]}
        request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as response:
            reply = json.load(response)
        assert "def judge(" in reply["choices"][0]["message"]["content"]
    finally:
        process.terminate()
        assert process.wait(10) == 0
