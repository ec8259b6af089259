"""The roles for programs over gRPC with a scripted provider: the author's three forms, and the four revisions."""

from __future__ import annotations

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.programs.families import program_task
from openai_server import Answer, ScriptedServer
from test_llm_agent_service import MODEL, SESSION, service

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]

TASK = program_task("karel/DoorKey")
BRIEF = pb.Brief(intent="open the door", environment=TASK.environment)
WEAK, BETTER = "DEF run m( move m)", "DEF run m( WHILE c( frontIsClear c) w( move w) pickMarker m)"
PYTHON = "```python\ndef run():\n    turnLeft()\n    if frontIsClear() and markersPresent():\n        move()\n```"
OF_PYTHON = "DEF run m( turnLeft IF c( and c( frontIsClear c) c( markersPresent c) c) i( move i) m)"
OWN_DSL = "DEF run m( turnLeft move m)"
BOTH = f"A plan.\n\n{PYTHON}\n\nDSL:\n\n```\n{OWN_DSL}\n```"


def author(form: str) -> pb.Task:
    task = pb.Task(session=SESSION, key=f"author/{form}", model=MODEL)
    task.program_author.CopyFrom(pb.ProgramAuthorTask(brief=BRIEF, task=TASK.environment, form=form))
    return task


def reviser(variant: str, **fields: object) -> pb.Task:
    task = pb.Task(session=SESSION, key=f"reviser/{variant}", model=MODEL)
    trials = [pb.ProgramTrial(program=WEAK, mean_return=-0.25), pb.ProgramTrial(program=BETTER, mean_return=0.375)]
    values = {"trials": trials, **fields}
    inner = pb.ProgramReviserTask(brief=BRIEF, task=TASK.environment, variant=variant, **values)  # type: ignore[arg-type]
    task.program_reviser.CopyFrom(inner)
    return task


@pytest.mark.parametrize(
    ("form", "expected"), [("pythonic", [OF_PYTHON, OWN_DSL]), ("python", [OF_PYTHON]), ("dsl", [OWN_DSL])]
)
async def test_each_form_of_the_author_takes_the_programs_it_asks_for(tmp_path, form, expected):
    with ScriptedServer([Answer(BOTH)]) as server:
        async with service(tmp_path, server.url) as client:
            talk = await client.converse(author(form))
        (request,) = server.requests
    prompt = request.text()
    assert list(talk.result.programs.programs) == expected
    assert "open the door" in prompt and "markersPresent" in prompt and request.body["temperature"] == 1
    assert ("def run():" in prompt) == (form != "dsl") and ("REPEAT R=" in prompt) == (form != "python")


async def test_a_reply_without_a_program_is_repaired_once_and_named(tmp_path):
    with ScriptedServer([Answer("```python\ndef run():\n    x = 1\n```"), Answer("Sorry.")]) as server:
        async with service(tmp_path, server.url) as client:
            error = await client.fails(author("pythonic"))
        repair = server.requests[-1].text("user")
    assert error.reason == "LLM_REPLY_UNUSABLE"
    assert "line 2: an assignment" in repair and "there is no program in the reply" in error.message


@pytest.mark.parametrize("variant", ["regeneration", "regeneration_with_reward", "agent_trace", "program_trace"])
async def test_each_revision_shows_what_it_promises(tmp_path, variant):
    trace = ""
    if variant.endswith("trace"):
        marked = "  def run():\n>     while frontIsClear():" if variant == "program_trace" else "action 1: move"
        trace = f"Initial grid:\n#####\n#>..#\n#####\n\n{marked}"  # the engine's own texts have tests of their own
    with ScriptedServer([Answer(BOTH)]) as server:
        async with service(tmp_path, server.url) as client:
            talk = await client.converse(reviser(variant, trace=trace))
        prompt = server.requests[0].text()
    assert list(talk.result.programs.programs) == [OF_PYTHON, OWN_DSL]
    if variant == "regeneration":
        assert "def run():\n    move()\n```" in prompt and "while frontIsClear():" in prompt
        assert "0.375" not in prompt and "differs from all" in prompt
    elif variant == "regeneration_with_reward":
        assert prompt.index("0.375") < prompt.index("-0.25") and "in common" in prompt
    else:
        assert "0.375" in prompt and "-0.25" not in prompt and "Initial grid" in prompt
        assert all(line.strip() in prompt for line in trace.splitlines() if line.strip())
        assert ("> " in trace and "`>`" in prompt) == (variant == "program_trace")


async def test_a_revision_without_what_it_needs_is_refused(tmp_path):
    with ScriptedServer([]) as server:
        async with service(tmp_path, server.url) as client:
            no_trace = await client.fails(reviser("agent_trace"))
            no_trials = await client.fails(reviser("regeneration", trials=[]))
            broken = await client.fails(reviser("regeneration", trials=[pb.ProgramTrial(program="DEF run m( jump m)")]))
    assert "trace: missing" in no_trace.message and "trials: must contain at least 1" in no_trials.message
    assert "jump" in broken.message
