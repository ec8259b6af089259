"""A real Prometheus scrapes a running system during a session: what the session implies is in it, and every query of the
dashboards and alerts names metrics and labels that are there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as pb
from dressage.errors import DressageError
from openai_server import Answer, ScriptedServer
from serving import Server

from tests.servers.prometheus import Prometheus, eventually, free_port
from tests.unit.chart.prometheus_tools import write_rules
from tests.unit.chart.queries import (
    GPU_LABELS,
    GPU_METRICS,
    Use,
    dashboards,
    has_samples_after_a_session,
    queries_of,
    rule_queries,
    uses,
)

STEPS = 4_000
MODEL = "openai/gpt-4o-mini"
CRITERIA = json.dumps({"criteria": [{"title": "stands", "description": "pitch below 0.1 rad"}], "questions": []})
# Metrics that the documentation lists and no dashboard shows.
PROMISED = {
    "grpc_server_started_total",
    "grpc_server_handled_total",
    "grpc_server_handling_seconds_bucket",
    "grpc_server_in_flight",
    "dressage_sessions",
    "dressage_iterations_total",
    "dressage_runs",
    "dressage_run_queue_seconds_bucket",
    "dressage_run_failures_total",
    "dressage_candidates_total",
    "dressage_env_steps_total",
    "dressage_episodes_total",
    "dressage_training_steps_per_second",
    "dressage_judgment_score_bucket",
    "dressage_judge_disagreements_total",
    "dressage_llm_requests_total",
    "dressage_llm_tokens_total",
    "dressage_llm_cost_dollars_total",
    "dressage_llm_request_seconds_bucket",
    "dressage_llm_journal_hits_total",
    "dressage_budget_exhausted_total",
    "dressage_sandbox_kills_total",
    "dressage_render_frames_total",
    "dressage_render_seconds_bucket",
    "dressage_artifact_bytes_total",
    "dressage_artifact_errors_total",
    "dressage_artifact_seconds_bucket",
    "dressage_workflow_recoveries_total",
    "dressage_build_info",
}
# A loaded machine takes minutes to start all of it.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus after a session by the template author, one question to a model and one failure of the store."""
    folder = tmp_path_factory.mktemp("prometheus")
    metrics = f"127.0.0.1:{free_port()}"
    prometheus = Prometheus(folder, {"orchestrator": metrics})
    keys = {"OPENAI_API_KEY": "sk-for-a-fake"}
    with ScriptedServer([Answer(CRITERIA, repeat=True)]) as provider:
        flags = ("--api-base", provider.url, "--metrics", metrics)
        with (
            Server(folder / "data", *flags, environment=keys) as server,
            prometheus.running(),
            server.client() as client,
        ):
            spec = pb.SessionSpec(
                intent="balance the pole",
                environment="environments/InvertedPendulum-v5",
                max_iterations=1,
                reward=pb.RewardSpec(seeds=1, steps_per_member=STEPS, evaluations=1, evaluation_episodes=2),
                pass_threshold=1.0,  # no confirmation: one training will do
                environment_options=pb.EnvironmentOptions(max_episode_steps=100),
            )
            client.create_session(spec, session_id="scraped")
            search = pb.ParameterSpec(search="random", episode_budget=6, episodes=2, report_episodes=2)
            spec = pb.SessionSpec(
                intent="balance the pole", environment="environments/MountainCar-v0", parameters=search
            )
            client.create_session(spec, session_id="searched")
            with contextlib.suppress(DressageError):  # the reply is requested and paid, even if it is lost
                client.elicit("balance the pole", "InvertedPendulum-v5", model=MODEL)
            with pytest.raises(DressageError):  # no file system takes such a name
                client.get_artifact("sessions/" + 300 * "a")
            for name in ("scraped", "searched"):
                ended = client.wait_session(name)
                assert ended.state in (pb.SESSION_STATE_SUCCEEDED, pb.SESSION_STATE_EXHAUSTED), ended
            states = 'sum(dressage_sessions{state=~"succeeded|exhausted"}) == 2'
            eventually(lambda: prometheus.value(states) or None, "the end of the session is not scraped")
            yield prometheus


def _dashboard_queries() -> Iterator[tuple[str, str]]:
    for name, document in dashboards().items():
        for panel, expression in queries_of(document):
            yield f"{name}: {panel}", expression


def test_every_query_names_metrics_and_labels_that_were_scraped(scraped: Prometheus, tmp_path: Path) -> None:
    labels = scraped.labels() | dict.fromkeys(GPU_METRICS, GPU_LABELS)
    write_rules(tmp_path / "rules.yaml")
    used = [
        (location, use)
        for location, text in [*_dashboard_queries(), *rule_queries(tmp_path / "rules.yaml")]
        for use in uses(text)
    ]
    assert len(used) > 50
    used += [("promised", Use(name, frozenset())) for name in PROMISED]
    wrong = []
    for location, use in used:
        if use.metric not in labels:
            wrong.append(f"{location}: no metric {use.metric}")
        elif use.labels - labels[use.metric]:
            wrong.append(f"{location}: {use.metric} has no labels {sorted(use.labels - labels[use.metric])}")
    assert not wrong, "\n".join(wrong)


def test_prometheus_takes_every_query_and_rule(scraped: Prometheus) -> None:
    for location, expression in _dashboard_queries():
        answer = scraped.get("query", query=expression)
        if has_samples_after_a_session(expression):
            assert answer["result"], f"{location}: nothing for {expression}"
    rules = [rule for group in scraped.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == 8
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule["name"] for rule in rules if rule["state"] == "firing"]


def test_values_are_what_the_session_implies(scraped: Prometheus) -> None:
    assert scraped.value('sum(dressage_iterations_total{method="reward"})') == 1
    assert scraped.value('sum(dressage_candidates_total{method="parameters", outcome="evaluated"})') == 3
    assert scraped.value('sum(dressage_episodes_total{environment="MountainCar-v0"})') == 6
    steps = scraped.value('sum(dressage_env_steps_total{environment="InvertedPendulum-v5"})')
    assert steps is not None and STEPS <= steps < 2 * STEPS
    assert scraped.value("sum(dressage_run_queue_seconds_count)") >= 1  # type: ignore[operator]
    assert scraped.value("sum(dressage_judgment_score_count)") == 1
    assert scraped.value(f'sum(dressage_llm_requests_total{{model="{MODEL}", outcome="ok"}})') >= 1  # type: ignore[operator]
    assert scraped.value("sum(dressage_llm_cost_dollars_total)") > 0  # type: ignore[operator]
    assert scraped.value("sum(dressage_render_frames_total)") > 0  # type: ignore[operator]
    assert scraped.value("sum(dressage_run_failures_total)") == 0
    assert scraped.value('sum(dressage_artifact_errors_total{operation="info"})') >= 1  # type: ignore[operator]
    sessions = [series for series in scraped.get("series", **{"match[]": '{__name__=~"dressage_.+"}'})]
    assert not any("scraped" in value for series in sessions for value in series.values()), "a session id in a label"
