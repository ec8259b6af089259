"""The methods parameters and code on the cluster. Trainers are Jobs; sessions survive the death of the orchestrator."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as pb

from tests.e2e.kubernetes.installation import Installation
from tests.e2e.kubernetes.provider import Provider
from tests.e2e.kubernetes.trainings import call, ended, jobs, search
from tests.servers.kubernetes import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MODEL = "openai/scripted"
ITERATIONS = 6


def test_a_search_with_a_model_survives_the_death_of_the_orchestrator(installed: Installation) -> None:
    provider = Provider(installed.space, "search.py")
    provider.start()
    episodes, warmup = 5, 4
    spec = search(search="r2po", episodes=episodes, warmup=warmup, episode_budget=warmup + ITERATIONS * 2 * episodes)
    spec.model, spec.max_iterations = MODEL, ITERATIONS
    call(installed, lambda client: client.create_session(spec, session_id="r2po"))

    def under_way() -> bool:
        iterations = call(installed, lambda client: list(client.list_iterations("r2po")))
        return len(iterations) >= 2

    until(under_way, seconds=300, every=0.5, what="the second iteration")
    pod = installed.pod("orchestrator")
    installed.space.run("delete", "pod", pod, "--force", "--grace-period=0", timeout=120)
    session = ended(installed, "r2po")
    assert session.state == pb.SESSION_STATE_EXHAUSTED, f"{session}\n{installed.space.diagnosis()}"
    iterations = call(installed, lambda client: list(client.list_iterations("r2po")))
    played = [entry for iteration in iterations for entry in iteration.parameters.candidates if not entry.duplicate_of]
    assert len(iterations) == ITERATIONS and all(entry.returns for entry in played)
    # Nothing was played or bought twice.
    assert session.episodes == sum(len(entry.returns) for entry in played)
    assert provider.counts()["requests"] == session.cost.requests == 2 * ITERATIONS
    assert len(session.report.returns) == 10 and session.best_policy
    assert jobs(installed, "r2po")


def test_code_policies_are_played(installed: Installation) -> None:
    Provider(installed.space, "search.py").start()
    spec = pb.SessionSpec(
        intent="balance the pole",
        environment="environments/CartPole-v1",
        model=MODEL,
        max_iterations=3,
        code=pb.CodeSpec(candidates=3, episodes=2, report_episodes=10),
    )
    call(installed, lambda client: client.create_session(spec, session_id="code"))
    session = ended(installed, "code")
    assert session.state == pb.SESSION_STATE_SUCCEEDED, f"{session}\n{installed.space.diagnosis()}"
    assert session.report.mean >= 475 and len(session.report.returns) == 10
    source = call(installed, lambda client: b"".join(client.read_artifact(f"{session.best_policy}/policy.py")).decode())
    assert "class Policy" in source
