"""Searches in registered languages by a real trainer: the same end after kills, and failures that harm nothing else."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs import custom
from dressage.envs.cards import load_card
from dressage.errors import DressageError, InvalidArgument
from dressage.programs.families import has_programs, program_task
from dressage.programs.languages import registering
from dressage.sandbox.capabilities import capabilities
from dressage.serving.channels import connect
from dressage_judge.settings import Settings as JudgeSettings
from dressage_judge.wiring import start as start_judge
from dressage_llm_agent.roles.program_author import ROLE
from dressage_orchestrator.clients import JudgeClient
from run_service import FakeRunService

pytestmark = [
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
    pytest.mark.timeout(600),
]

STUMBLING = Path(__file__).parent / "stumbling"
VACUUM = Path(__file__).parents[3] / "examples" / "languages" / "vacuum"
END = "DEF run m( WHILE c( goalIsRight c) w( right w) m)"


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of environments with the language of `STUMBLING`, for this process and those that it starts."""
    folder = tmp_path_factory.mktemp("languages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(custom.VARIABLE, str(folder / "environments"))
        description = registering.register(str(STUMBLING), print)
        assert description.engine == "stepped" and description.own == ("read_reply",)
        yield folder


def search(
    task: str, *, number: int = 1, cores: int = 1, budget: int = 300, language: str = "stumbling"
) -> pb.Assignment:
    work = pb.SearchAssignment(
        environment=f"{language}/{task}", algorithm="scheduled_hill_climb", budget=budget, episodes=8, seed=7,
        checkpoint_seconds=1e-9,
    )  # fmt: skip
    work.program.SetInParent()
    return pb.Assignment(id=number, cores=cores, search=work)


def results(store: Path, *assignments: pb.Assignment, timeout: float = 200) -> list[Any]:
    with FakeRunService(store, *assignments) as service:
        service.start_trainer(store.with_name(f"{store.name}-scratch"))
        return [service.wait_for("result", timeout=timeout)[1].result for _ in assignments]


def end(result: Any) -> tuple[Any, ...]:
    search = result.search
    return search.evaluated, search.best_score, search.best_program, [one.evaluated for one in search.improvements]


def killed(store: Path, assignment: pb.Assignment) -> Any:
    """The result of a search whose trainer is killed twice after a checkpoint."""
    with FakeRunService(store, assignment) as service:
        for attempt in (1, 2, 3):
            trainer = service.start_trainer(store.with_name(f"{store.name}-{attempt}"), attempt=attempt)
            if attempt < 3:
                service.wait_for("checkpoint", timeout=200)
                trainer.send_signal(signal.SIGKILL)
                assert trainer.wait(30) == -9
        service.wait_for("result", timeout=200)
        assert trainer.wait(60) == 0
        return service.accepted[1, "result"].result


def test_a_stepped_search_ends_the_same_after_kills_and_on_more_cores(environments: Path) -> None:
    whole, more = results(environments / "whole", search("Good"), search("Good", number=2, cores=2))
    assert whole.search.evaluated == 300 and whole.search.best_score > 0, whole.failure
    assert end(more) == end(whole)
    assert end(killed(environments / "killed", search("Good"))) == end(whole)


@pytest.mark.slow
def test_a_search_by_rules_ends_the_same_after_kills_and_on_more_cores(environments: Path) -> None:
    registering.register(str(VACUUM), print)
    try:
        tasks = [search("CleanRoom", number=n, cores=n, budget=60_000, language="vacuum") for n in (1, 2)]
        whole, more = results(environments / "rules", *tasks)
        assert whole.search.evaluated == 60_000 and whole.search.best_score > 0.5, whole.failure
        assert end(more) == end(whole)
        assert end(killed(environments / "killed-rules", tasks[0])) == end(whole)
    finally:
        registering.unregister("vacuum")


@pytest.mark.slow
def test_a_plugin_that_hangs_ends_its_search(environments: Path) -> None:
    hanging, good = results(environments / "hanging", search("Hangs"), search("Good", number=2, budget=20), timeout=400)
    assert hanging.failure.failure.reason == "LANGUAGE_FAILED" and "no sign" in hanging.failure.failure.message
    assert good.search.evaluated == 20


def test_a_plugin_that_fails_ends_its_search_only(environments: Path) -> None:
    """All in one trainer: the next assignment succeeds after each failure."""
    reasons = {
        "Raises": r"environment.reset: the plug-in raised ZeroDivisionError",
        "Exits": "ended with code 3",
        "Crashes": "SIGSEGV",
        "Hoards": "memory",
        "Hostile": "succeeded: []",
    }
    tasks = [search(task, number=number) for number, task in enumerate(reasons, start=1)]
    last = search("StairClimber", number=len(tasks) + 1, budget=50, language="karel")
    *failed, good = results(environments / "failing", *tasks, last, timeout=400)
    for result, message in zip(failed, reasons.values(), strict=True):
        failure = result.failure
        assert failure.failure.reason == "LANGUAGE_FAILED" and message in failure.failure.message
        assert failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT  # another attempt would find the same
    assert good.search.evaluated == 50, good.failure


def test_a_program_is_played_and_a_failing_one_is_named(environments: Path) -> None:
    tasks = []
    for number, task in enumerate(("Good", "Raises", "Exits"), start=1):
        assignment = pb.Assignment(id=number, cores=1)
        assignment.evaluate.environment = f"stumbling/{task}"
        assignment.evaluate.seeds.extend(range(8))
        assignment.evaluate.candidates.add(id="one", program=END)
        tasks.append(assignment)
    with FakeRunService(environments / "played", *tasks) as service:
        service.start_trainer(environments / "played-scratch")
        for _ in tasks:
            service.wait_for("result", timeout=200)
        good, *failed = (service.accepted[number, "candidate/one"].candidate for number in (1, 2, 3))
    assert list(good.returns) == [1.0] * 8
    assert [one.failure.reason for one in failed] == ["LANGUAGE_FAILED"] * 2


def test_commands_run_the_code_in_a_sandboxed_process(environments: Path) -> None:
    task = program_task("stumbling/Good")
    assert [one.reward for one in task.play(task.parse(END), range(1_000, 1_004))] == [1.0] * 4
    traced = task.trace(task.parse(END), 1_000)
    assert traced.total == 1 and traced.steps[0].operation == "goalIsRight()"
    for name, message in (("Raises", "ZeroDivisionError"), ("Exits", "ended with code 3")):
        broken = program_task(f"stumbling/{name}")
        with pytest.raises(DressageError, match=message) as error:
            broken.play(broken.parse(END), range(8))
        assert error.value.reason == "LANGUAGE_FAILED"
    assert "stumbling" not in sys.modules
    card = load_card("stumbling/Good")
    assert card.methods == ("program",) and not card.has_video and "stepped in Python" in card.description


@pytest.mark.asyncio
async def test_judge_reads_replies_with_the_plugin(environments: Path, tmp_path: Path) -> None:
    """Over gRPC, as a session asks for it: texts that are no program are left out."""
    settings = JudgeSettings(store_url=str(tmp_path / "artifacts"), scratch=str(tmp_path / "scratch"), grace_seconds=1)
    service = await start_judge(settings)
    try:
        client = JudgeClient(connect(service.address), seconds=120)
        request = judge_pb.ReadRepliesRequest(environment="stumbling/Good")
        request.replies.extend(["!right right\n!fly\nno\n!left", "nothing", "!right"])
        programs = [list(reply.programs) for reply in (await client.read_replies(request)).replies]
        request.environment = "karel/DoorKey"
        with pytest.raises(DressageError, match="no task of a registered language"):
            await client.read_replies(request)
    finally:
        await service.stop()
    assert programs == [["DEF run m( right right m)", "DEF run m( left m)"], [], ["DEF run m( right m)"]]
    assert not list((tmp_path / "scratch").iterdir())


def test_llm_agent_uses_the_template_and_hands_on_the_reply(environments: Path) -> None:
    """llm-agent reads the description only: the plug-in is not imported."""
    role, task = ROLE(), agent_pb.ProgramAuthorTask(task="stumbling/Good")
    system, user = role.messages(task, None)
    assert "program author" in system.content and user.content.startswith("Write words for a line.")
    assert "goalIsRight" in user.content and "Reach the goal." in user.content and "$" not in user.content
    assert "Answer with lines that begin with" in user.content
    assert role.parse("!right", task) == agent_pb.Programs(reply="!right")
    assert "stumbling" not in sys.modules


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "raise OSError('no licence')",
            "import of broken: the plug-in raised OSError in line 1 of broken.py: no licence",
        ),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("PLUGIN = 3", "expected a Plugin named PLUGIN in broken"),
        ("import os; os._exit(4)", "ended with code 4"),
        ("while True: pass", "ran longer|took longer|no message|did not"),
        ("from stumbling import PLUGIN", "No module named 'stumbling'"),
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_a_module_that_cannot_be_registered_leaves_nothing(
    source: str, problem: str, environments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registering, "SECONDS", 8.0 if "while" in source else 300.0)
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(DressageError, match=problem):
        registering.register(str(tmp_path / "broken.py"), lambda _: None)
    assert custom.language_names() == ("stumbling",)
    assert sorted(path.name for path in (environments / "environments" / "languages").iterdir()) == ["stumbling"]


def test_a_name_of_this_package_is_not_taken(environments: Path, tmp_path: Path) -> None:
    source = (STUMBLING / "__init__.py").read_text().replace('name="stumbling"', 'name="karel"')
    (tmp_path / "other.py").write_text(source)
    with pytest.raises(InvalidArgument, match=r"name: taken.*'karel'"):
        registering.register(str(tmp_path / "other.py"), lambda _: None)


def test_changed_code_is_refused_until_it_is_registered_again(environments: Path) -> None:
    folder = environments / "environments" / "languages" / "stumbling"
    shutil.copytree(folder, folder.with_name("kept"))
    try:
        with (folder / "code" / "stumbling" / "__init__.py").open("a") as file:
            file.write("\n# changed\n")
        task = program_task("stumbling/Good")
        with pytest.raises(DressageError, match="is not the registered one"):
            task.play(task.parse(END), [1])
    finally:
        shutil.rmtree(folder)
        folder.with_name("kept").rename(folder)
    assert has_programs("stumbling/Good")
