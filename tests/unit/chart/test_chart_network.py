"""NetworkPolicies: the arrows that they draw are exactly those of a table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.chart.rendering import SCENARIOS, of_kind

GRPC, METRICS, POSTGRESQL, S3, HTTP = 50051, 9090, 5432, 9000, 8080
SERVICES = ("orchestrator", "llm-agent", "judge", "renderer")

# From, to, port: dependencies point one way, trainers dial the orchestrator, everybody keeps artifacts.
ARROWS = {
    ("orchestrator", "llm-agent", GRPC),
    ("orchestrator", "judge", GRPC),
    ("orchestrator", "renderer", GRPC),
    ("judge", "llm-agent", GRPC),
    ("judge", "renderer", GRPC),
    ("trainer", "orchestrator", GRPC),
    ("test", "orchestrator", GRPC),
    ("console", "orchestrator", GRPC),
}
STORE_ARROWS = {(one, "minio", S3) for one in (*SERVICES, "trainer")}
DATABASE_ARROWS = {("orchestrator", "postgresql", POSTGRESQL)}


def _component(peer: dict[str, Any]) -> str | None:
    labels = peer.get("podSelector", {}).get("matchLabels", {})
    if "namespaceSelector" in peer or labels.get("app.kubernetes.io/name") != "dressage":
        return None
    assert labels["app.kubernetes.io/instance"] == "r", "a peer of another release"
    return str(labels["app.kubernetes.io/component"])


def _subject(policy: dict[str, Any]) -> str:
    return str(policy["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component", ""))


def _arrows(scenario: str, direction: str) -> set[tuple[str, str, int]]:
    key = "to" if direction == "egress" else "from"
    arrows = set()
    for policy in of_kind(scenario, "NetworkPolicy"):
        for rule in policy["spec"].get(direction, []):
            for peer in rule[key]:
                other = _component(peer)
                for port in rule["ports"]:
                    if other is not None:
                        ends = (_subject(policy), other) if direction == "egress" else (other, _subject(policy))
                        arrows.add((*ends, port["port"]))
    return arrows


def _outside(scenario: str) -> dict[str, list[tuple[list[str], list[int]]]]:
    """By component: the address blocks that it may reach, with ports."""
    by_component: dict[str, list[tuple[list[str], list[int]]]] = {}
    for policy in of_kind(scenario, "NetworkPolicy"):
        for rule in policy["spec"].get("egress", []):
            blocks = [peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer]
            if blocks:
                by_component.setdefault(_subject(policy), []).append((blocks, [port["port"] for port in rule["ports"]]))
    return by_component


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_network_policies_allow_exactly_these_connections(scenario: str, direction: str) -> None:
    bundled = scenario != "external-stores"
    expected = ARROWS | (STORE_ARROWS | DATABASE_ARROWS if bundled else set())
    assert _arrows(scenario, direction) == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_all_is_denied_that_is_not_allowed(scenario: str) -> None:
    policies = of_kind(scenario, "NetworkPolicy")
    deny = next(policy for policy in policies if policy["metadata"]["name"].endswith("default-deny"))
    assert deny["spec"] == {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "dressage", "app.kubernetes.io/instance": "r"}},
        "policyTypes": ["Ingress", "Egress"],
    }
    for policy in policies:
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        for direction, key in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction, []):
                assert rule.get(key) and rule.get("ports"), "a rule without peers or ports allows everything"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_llm_agent_reaches_the_internet(scenario: str) -> None:
    outside = _outside(scenario)
    ((blocks, ports),) = [entry for entry in outside["llm-agent"] if "0.0.0.0/0" in entry[0]]
    assert blocks == ["0.0.0.0/0"] and ports == [443]
    for name, entries in outside.items():
        for blocks, _ in entries:
            for block in blocks:
                if name != "llm-agent":
                    assert block.startswith(("10.", "172.16.", "192.168.")), f"{name} reaches {block}"
    rules = [
        rule
        for policy in of_kind(scenario, "NetworkPolicy")
        if _subject(policy) == "llm-agent"
        for rule in policy["spec"]["egress"]
    ]
    (internet,) = [p for rule in rules for p in rule["to"] if p.get("ipBlock", {}).get("cidr") == "0.0.0.0/0"]
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"} <= set(internet["ipBlock"]["except"])


def test_only_the_orchestrator_reaches_the_api_server() -> None:
    reaching = {name for name, entries in _outside("minimal").items() if any(6443 in ports for _, ports in entries)}
    assert reaching == {"orchestrator"}
    blocks = _outside("external-stores")["orchestrator"]
    assert (["10.0.0.1/32"], [6443]) in blocks


def test_trainers_reach_dns_orchestrator_and_store_and_nothing_else() -> None:
    for scenario, rest in (("minimal", []), ("external-stores", [(["10.1.2.4/32"], [443])])):
        (policy,) = [p for p in of_kind(scenario, "NetworkPolicy") if _subject(p) == "trainer"]
        assert "ingress" not in policy["spec"]
        assert _outside(scenario).get("trainer", []) == rest
        assert len(policy["spec"]["egress"]) == 3


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_prometheus_and_dns(scenario: str) -> None:
    scraped = set()
    for policy in of_kind(scenario, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            for peer in rule["from"]:
                if peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/name") == "prometheus":
                    assert "namespaceSelector" in peer
                    scraped.add((_subject(policy), rule["ports"][0]["port"]))
        dns = [
            port["port"] for rule in policy["spec"].get("egress", []) for port in rule["ports"] if port["port"] == 53
        ]
        assert len(dns) in (0, 2)
    assert scraped >= {(name, METRICS) for name in (*SERVICES, "console")}


@pytest.mark.parametrize(("service", "port"), [("orchestrator", GRPC), ("console", HTTP)])
def test_clients_come_through_the_ingress_or_by_a_label(service: str, port: int) -> None:
    (policy,) = [p for p in of_kind("ingress-tls", "NetworkPolicy") if _subject(p) == service]
    peers = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"] if rule["ports"][0]["port"] == port]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}} in peers
    assert {"ipBlock": {"cidr": "10.20.0.0/16"}} in peers
    (plain,) = [p for p in of_kind("minimal", "NetworkPolicy") if _subject(p) == service]
    outer = [p for rule in plain["spec"]["ingress"] for p in rule["from"] if _component(p) is None]
    assert {"podSelector": {"matchLabels": {"dressage.io/client": "true"}}} in outer
    assert not any("ipBlock" in peer for peer in outer)
