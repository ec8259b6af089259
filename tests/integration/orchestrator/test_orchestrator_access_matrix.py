"""Every method of the public API × every role × resources of another principal. A method without an entry fails."""

from __future__ import annotations

from typing import Any

from dressage.api.v1.benchmark_service_pb2 import BenchmarkCase
from dressage.errors import DressageError
from google.protobuf import message_factory

from tests.fakes.public_api import METHODS
from tests.integration.orchestrator.people import SPEC, call, client, write_principals
from tests.integration.orchestrator.stack import Stack

ROLES = ("vera", "ugo", "uma", "ada")
"""A viewer, another user, the owner, an administrator."""
LETTERS = {
    "ROLE_TOO_LOW": "r",
    "NOT_THE_OWNER": "o",
    "SESSION_DELETED": "d",
    "SESSION_NOT_FOUND": "n",
    "ARTIFACT_NOT_FOUND": "n",
}
"""What a refusal is for; a call that is permitted is a dot, whatever it returns, and - one that is not made."""

Cells = dict[str, str]
"""By resource: the outcome for each of the four."""

READ = {"kept": "....", "gone": "dd..", "left": "nnnn"}
CHANGE = {"kept": "ro..", "gone": "ro..", "left": "rnnn"}
FILE = {"kept": "....", "gone": "dddd", "left": "nnn."}
CONVERSATION = {"kept/llm": "oo..", "gone/llm": "dddd", "left/llm": "nnn."}
ALL = {"": "...."}
USERS = {"": "r..."}

MATRIX: dict[str, Cells] = {
    "SessionService/CreateSession": {"": "r...", "kept": "r...", "left": "r..."},
    "SessionService/EstimateSession": ALL,
    "SessionService/GetSession": READ,
    "SessionService/ListSessions": ALL,
    "SessionService/WatchSession": READ,
    "SessionService/GetIteration": {"kept": "....", "gone": "dd.."},
    "SessionService/ListIterations": READ,
    "SessionService/GetRun": {"kept": "....", "gone": "dd.."},
    "SessionService/ListRuns": READ,
    "SessionService/ReadRunLog": {"kept": "....", "gone": "dd.."},
    "SessionService/GetAssignment": {"kept": "....", "gone": "dd.."},
    "SessionService/ListAssignments": READ,
    "SessionService/GetLineage": READ,
    "SessionService/ListPools": ALL,
    "SessionService/SteerSession": CHANGE,
    "SessionService/ApproveSession": CHANGE,
    "SessionService/LabelRollout": {**CHANGE, "left": "rnn."},
    "SessionService/CancelSession": CHANGE,
    "SessionService/ResumeSession": {**CHANGE, "gone": "rodd"},
    "SessionService/DeleteSession": CHANGE,
    "SessionService/UndeleteSession": {"kept": "ro..", "gone": "ro--", "left": "rnnn"},
    "EnvironmentService/GetEnvironment": ALL,
    "EnvironmentService/ListEnvironments": ALL,
    "EnvironmentService/GetEnvironmentModel": ALL,
    "IntentService/Elicit": USERS,
    "ArtifactService/ListArtifacts": {"kept": "....", "gone": "dd..", "left": "....", "kept/llm": "oo.."},
    "ArtifactService/GetArtifact": {**FILE, **CONVERSATION},
    "ArtifactService/ReadArtifact": {**FILE, **CONVERSATION},
    "ArtifactService/GetRolloutPoses": {"kept": "oo..", "gone": "dddd", "left": "nnnn", "kept/shown": "...."},
    "ArtifactService/GetRolloutVideo": {"kept": "ro..", "gone": "rodd", "left": "rnnn", "kept/shown": "ro.."},
    "BenchmarkService/CreateBenchmark": {"": "r...", "bench": "ro.."},
    "BenchmarkService/GetBenchmark": {"bench": "...."},
    "BenchmarkService/ListBenchmarks": ALL,
    "BenchmarkService/WatchBenchmark": {"bench": "...."},
    "BenchmarkService/CancelBenchmark": {"bench": "ro.."},
    "MaintenanceService/CollectGarbage": {"": "rrr."},
}
BELOW = {
    "GetIteration": "/iterations/1",
    "GetRun": "/runs/r1",
    "ReadRunLog": "/runs/r1",
    "GetAssignment": "/iterations/1/assignments/a",
    "ListAssignments": "/iterations/-",
    "GetArtifact": "/reward.py",
    "ReadArtifact": "/reward.py",
    "LabelRollout": "/iterations/1/assignments/a/members/m/rollouts/1.npz",
    "GetRolloutPoses": "/rollouts/1.npz",
    "GetRolloutVideo": "/rollouts/1.npz",
    "ListArtifacts": "/",
}
OTHER_FIELDS: dict[str, dict[str, Any]] = {
    "CreateSession": {"spec": SPEC},
    "EstimateSession": {"spec": SPEC},
    "SteerSession": {"note": "faster"},
    "DeleteSession": {"etag": "another"},
    "GetEnvironment": {"name": "environments/Hopper-v5"},
    "GetEnvironmentModel": {"name": "environments/Hopper-v5"},
    "Elicit": {"intent": "run", "environment": "environments/Hopper-v5"},
    "CollectGarbage": {"validate_only": True},
    "CreateBenchmark": {"template": SPEC, "cases": [{"intent": "run", "environment": "environments/HalfCheetah-v5"}]},
}


def request_of(method: str, resource: str, number: int) -> Any:
    """The request of a method for a resource: a session with what is below it, or a benchmark."""
    name = method.partition("/")[2]
    request = message_factory.GetMessageClass(METHODS[f"dressage.v1.{method}"].input_type)(**OTHER_FIELDS.get(name, {}))
    session, _, part = resource.partition("/")
    if name == "CreateSession":
        request.session_id = session or f"new-{number}"
    elif name == "CreateBenchmark":
        request.name = f"benchmarks/{session or f'new-{number}'}"
        request.cases[0].session_id = f"case-{session}-{number}"
    elif resource == "bench":
        request.name = "benchmarks/bench"
    elif resource:
        field = next(
            f for f in ("name", "parent", "key", "prefix", "rollout") if f in request.DESCRIPTOR.fields_by_name
        )
        folder = f"/{part}" if part else ""
        setattr(request, field, f"sessions/{session}{folder}{BELOW.get(name, '')}")
    return request


def test_every_method_of_the_api_has_an_entry():
    assert {f"dressage.v1.{method}" for method in MATRIX} == METHODS.keys()
    assert all(len(cell) == len(ROLES) for cells in MATRIX.values() for cell in cells.values())
    for method, cells in MATRIX.items():
        names = METHODS[f"dressage.v1.{method}"].input_type.fields_by_name
        if set(names.keys()) & {"parent", "key", "prefix", "rollout"}:
            assert cells.keys() >= {"kept", "gone"}, method


async def test_the_matrix_of_methods_roles_and_resources(stack: Stack):
    stack.options = {"principals_file": write_principals(stack.folder)}
    await stack.start()
    async with client(stack, "uma") as uma:
        for name in ("kept", "gone"):
            await uma.create_session(SPEC, session_id=name)
        case = BenchmarkCase(intent="run", environment="environments/HalfCheetah-v5", session_id="first")
        await uma.create_benchmark([case], template=SPEC, name="bench")
        await uma.delete_session("gone", force=True)
        await uma.wait_session("gone")
    for session in ("kept", "gone", "left"):
        for file in (
            "reward.py",
            "rollouts/1.npz",
            "llm/reward.py",
            "shown/rollouts/1.npz",
            "shown/rollouts/1.poses.npz",
        ):
            stack.store.put(f"sessions/{session}/{file}", b"{}")
    wrong = []
    for method, cells in MATRIX.items():
        for resource, expected in cells.items():
            for number, (name, outcome) in enumerate(zip(ROLES, expected, strict=True)):
                if outcome == "-":
                    continue
                error = await call(stack, f"dressage.v1.{method}", request_of(method, resource, number), name)
                if letter_of(error) != outcome:
                    wrong.append((method, resource, name, outcome, letter_of(error), error))
    assert not wrong, "\n".join(map(str, wrong))


def letter_of(error: DressageError | None) -> str:
    return "." if error is None else LETTERS.get(error.reason, ".")
