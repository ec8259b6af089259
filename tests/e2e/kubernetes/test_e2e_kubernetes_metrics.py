"""A real Prometheus scrapes the pods during a session: what the session implies is in it, and dashboards show something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as pb
from dressage.errors import DressageError

from tests.e2e.kubernetes.installation import METRICS, SERVICES, Installation
from tests.e2e.kubernetes.provider import Provider
from tests.e2e.kubernetes.trainings import call, ended, search, training
from tests.servers.prometheus import Prometheus, eventually
from tests.unit.chart.queries import dashboards, has_samples_after_a_session, queries_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

# A model whose price is known, so that the cost is known.
MODEL = "openai/gpt-4o-mini"
# What a session of one seed and two iterations adds, by the API's own account of it.
COUNTED = {
    "iterations": "sum(dressage_iterations_total)",
    "steps": 'sum(dressage_env_steps_total{environment="InvertedPendulum-v5",pool="cpu"})',
    "requests": f'sum(dressage_llm_requests_total{{model="{MODEL}",outcome="ok"}})',
    "dollars": f'sum(dressage_llm_cost_dollars_total{{model="{MODEL}"}})',
    "runs": "sum(dressage_run_queue_seconds_count)",
    "failures": "sum(dressage_run_failures_total)",
}


@pytest.fixture
def prometheus(installed: Installation, tmp_path: Path) -> Iterator[Prometheus]:
    with ExitStack() as stack:
        targets = {
            name: stack.enter_context(installed.space.forwarded(f"pod/{installed.pod(name)}", METRICS))
            for name in SERVICES
        }
        yield stack.enter_context(Prometheus(tmp_path, targets).running())


def test_metrics_describe_the_session(installed: Installation, prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.value("count(up == 1) == 4"), "not all services are scraped", seconds=120)
    # The panels of searches have samples after a search.
    call(installed, lambda client: client.create_session(search(), session_id="searched"))
    assert ended(installed, "searched").state == pb.SESSION_STATE_EXHAUSTED
    before = {name: prometheus.value(text) or 0.0 for name, text in COUNTED.items()}
    Provider(installed.space, "one_revision.py").start()
    spec = training(20_000, model=MODEL, max_iterations=2, pass_threshold=1.0)
    spec.reward.train_only, spec.reward.reward_source, spec.reward.seeds = False, "", 1
    spec.video_judging = pb.VIDEO_JUDGING_NONE
    call(installed, lambda client: client.create_session(spec, session_id="metered"))
    with installed.client() as client, pytest.raises(DressageError):
        client.get_artifact(
            "sessions/" + 300 * "a"
        )  # no store takes such a name: a failure, for the panels of failures
    session = ended(installed, "metered")
    assert session.state == pb.SESSION_STATE_EXHAUSTED, f"{session}\n{installed.space.diagnosis()}"
    eventually(
        lambda: prometheus.value("sum(dressage_iterations_total)") == before["iterations"] + 2 or None,
        "the end of the session is not scraped",
    )
    added = {name: (prometheus.value(text) or 0.0) - before[name] for name, text in COUNTED.items()}
    assert added["iterations"] == 2 and added["runs"] == 1 and added["failures"] == 0, added  # one lease for all
    assert added["steps"] == session.env_steps >= 40_000
    assert added["requests"] == session.cost.requests > 3
    assert added["dollars"] == pytest.approx(session.cost.dollars) and session.cost.dollars > 0
    empty = []
    for name, document in dashboards().items():
        for panel, expression in queries_of(document):
            if has_samples_after_a_session(expression) and not prometheus.get("query", query=expression)["result"]:
                empty.append(f"{name}: {panel}: {expression}")
    assert not empty, "\n".join(empty)
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    # The name that no store takes is an error of the store, whose alert fires after a while.
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert len(rules) == 8 and firing <= {"DressageStoreErrors"}, firing
