"""Sessions that these tests watch from outside: by the API, their Jobs and their pods."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client

from tests.e2e.kubernetes.installation import Installation
from tests.fakes.specs import reward_session
from tests.servers.kubernetes import until

T = TypeVar("T")

REWARD = """
LATEX = r"1 - \\theta^2"
TERMS = {"alive": "1 for every step", "angle": "cost of the squared angle"}

def reward(state, action, next_state, memory, np):
    return {"alive": np.ones_like(next_state.pole_angle), "angle": -np.square(next_state.pole_angle / 0.2)}
"""
ENDED = (pb.SESSION_STATE_SUCCEEDED, pb.SESSION_STATE_EXHAUSTED, pb.SESSION_STATE_FAILED, pb.SESSION_STATE_CANCELLED)


def training(steps: int, **more: Any) -> pb.SessionSpec:
    """A session that only trains."""
    return reward_session(
        intent="balance the pole",
        environment="environments/InvertedPendulum-v5",
        reward_source=REWARD,
        train_only=True,
        seeds=2,
        steps_per_member=steps,
        evaluations=2,
        evaluation_episodes=2,
        **more,
    )


def search(**settings: Any) -> pb.SessionSpec:
    """A short session of the method `parameters` whose target cannot be reached; without a model by default."""
    given = {"search": "hill_climb", "episodes": 5, "report_episodes": 10, "episode_budget": 100, "target": 1e6}
    spec = pb.SessionSpec(intent="balance the pole", environment="environments/CartPole-v1")
    spec.parameters.CopyFrom(pb.ParameterSpec(**(given | settings)))
    return spec


def run_of(session: str, number: int = 1) -> str:
    return f"sessions/{session}/runs/r{number}"


def assignment_of(session: str, iteration: int = 1) -> str:
    return f"sessions/{session}/iterations/{iteration}/assignments/train"


def call(installed: Installation, question: Callable[[Client], T], *, seconds: float = 300) -> T:
    """Call the API, with a new port-forward for each retry while pods are replaced."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with installed.client() as client:
                return question(client)
        except (errors.Unavailable, errors.DeadlineExceeded, AssertionError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(2)


def ended(installed: Installation, session: str, *, seconds: float = 1800) -> pb.Session:
    """The session at its end, however often the way to it breaks."""

    def look() -> pb.Session | None:
        result = call(installed, lambda client: client.get_session(session))
        return result if result.state in ENDED else None

    result = until(look, seconds=seconds, every=2, what=f"the end of session {session}")
    assert result is not None
    return result


def jobs(installed: Installation, session: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = installed.space.get("jobs", selector=f"dressage.io/session={session}")
    return jobs


def pods(installed: Installation, session: str) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = installed.space.get("pods", selector=f"dressage.io/session={session}")
    return pods


def living(installed: Installation, run: str) -> dict[str, Any] | None:
    """The run's pod that is up and not about to go."""
    own = (
        pod for pod in pods(installed, run.split("/")[1]) if pod["metadata"]["annotations"]["dressage.io/run"] == run
    )
    alive = (pod for pod in own if pod["status"]["phase"] == "Running")
    return next((pod for pod in alive if "deletionTimestamp" not in pod["metadata"]), None)


def trained(
    installed: Installation, session: str, *, attempt: int, beyond: int = 0, iteration: int = 1
) -> tuple[str, int]:
    """Waits until that attempt trains, and all members are beyond so many steps; its pod, and the steps."""

    def look() -> tuple[str, int] | None:
        try:
            work = call(installed, lambda client: client.get_assignment(assignment_of(session, iteration)))
        except errors.NotFound:  # the reward is still being written or checked
            return None
        assert work.state != pb.ASSIGNMENT_STATE_FAILED, work
        early = f"{session} ended before all faults: raise DRESSAGE_E2E_FAULT_STEPS"
        assert work.state != pb.ASSIGNMENT_STATE_SUCCEEDED, early
        if not work.run:
            return None
        run = call(installed, lambda client: client.get_run(work.run))
        done = min((member.env_steps for member in work.members), default=0)
        if run.attempt != attempt or run.state != pb.RUN_STATE_RUNNING or done <= beyond:
            return None
        pod = living(installed, run.name)
        return (str(pod["metadata"]["name"]), done) if pod else None

    result = until(look, seconds=600, every=1, what=f"attempt {attempt} of {session} trains beyond {beyond} steps")
    assert result is not None
    return result


def weights(installed: Installation, session: str, iteration: int = 1) -> dict[str, str]:
    """SHA-256 of every member's weights."""

    def read(client: Client) -> dict[str, str]:
        result = {}
        for member in client.get_assignment(assignment_of(session, iteration)).members:
            data = b"".join(client.read_artifact(f"{member.policy}/policy.safetensors"))
            result[member.name.rpartition("/")[2]] = hashlib.sha256(data).hexdigest()
        return result

    return call(installed, read)
