"""Properties of what the chart renders, in every scenario of `ci/`."""

from __future__ import annotations

import json
import re
from functools import cache

import kubernetes_validate
import pytest
from cloudcoil.models.cert_manager.v1 import Certificate
from dressage.serving.server import MAX_MESSAGE_BYTES
from pydantic import ValidationError

from tests.unit.chart.rendering import (
    CHART,
    CUSTOM_KINDS,
    NAMESPACE,
    SCENARIOS,
    Manifest,
    component,
    containers,
    helm,
    of_kind,
    pods,
    rendered,
    selects,
    template,
)

OLDEST, NEWEST = "1.30", "1.37"
SERVICES = {"orchestrator", "llm-agent", "judge", "renderer"}
SERVED = SERVICES | {"console"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_chart_lints(scenario: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / f"{scenario}-values.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_manifests_are_valid_for_the_oldest_and_the_newest_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    # The library reads a megabyte of definitions for each manifest: once will do.
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
    different: dict[str, Manifest] = {}
    for scenario in SCENARIOS:
        for manifest in rendered(scenario):
            if manifest["kind"] not in CUSTOM_KINDS | {"ServiceAccount"}:
                secret = manifest["kind"] == "Secret"  # its random keys are no news
                key = manifest["metadata"]["name"] if secret else json.dumps(manifest, sort_keys=True)
                different[key] = manifest
    assert len(different) > 50
    for manifest in different.values():
        kubernetes_validate.validate(manifest, OLDEST, strict=True)
    # What the newest would refuse, it refuses in the kind, not in a scenario.
    for manifest in {entry["kind"] + component(entry): entry for entry in different.values()}.values():
        kubernetes_validate.validate(manifest, NEWEST, strict=True)


def test_validation_would_notice_a_mistake() -> None:
    broken = json.loads(json.dumps(of_kind("minimal", "Deployment")[0]))
    broken["spec"]["template"]["spec"]["containers"][0]["imagePullPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, OLDEST, strict=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_object_has_a_unique_name_in_the_namespace(scenario: str) -> None:
    names = [(entry["kind"], entry["metadata"]["name"]) for entry in rendered(scenario)]
    assert len(names) == len(set(names))
    within = [entry for entry in rendered(scenario) if not entry["kind"].startswith("ClusterRole")]
    assert {entry["metadata"]["namespace"] for entry in within} == {NAMESPACE}
    whole = [entry["metadata"]["name"] for entry in rendered(scenario) if entry not in within]
    assert all(name.startswith(f"{NAMESPACE}-") for name in whole)  # two releases do not share one
    for _, name in names:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", name)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_pod_meets_pod_security_restricted(scenario: str) -> None:
    """The rules of the profile *restricted*, and a read-only root besides."""
    seen = 0
    for name, pod in pods(scenario):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), name
        kinds = {key for volume in spec.get("volumes", []) for key in volume if key != "name"}
        assert kinds <= {"configMap", "emptyDir", "secret", "persistentVolumeClaim", "projected", "downwardAPI"}, name
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in port for port in container.get("ports", []))
        seen += 1
    assert seen >= 5


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_container_is_bounded_and_every_server_probed(scenario: str) -> None:
    for name, pod in pods(scenario):
        for container in containers(pod):
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name
        for volume in pod["spec"].get("volumes", []):
            if "emptyDir" in volume:
                assert volume["emptyDir"].get("sizeLimit"), f"{name}: {volume['name']} has no bound"
        if component(pod) == "test":
            continue
        for container in pod["spec"]["containers"]:
            probes = [container[kind] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
            if component(pod) in SERVICES:
                ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
                # Kubelets probe without TLS.
                assert all(probe["grpc"]["port"] == ports.get("health", ports["grpc"]) for probe in probes)
            if component(pod) == "console":
                hosts = json.loads(_env(scenario, "console")["DRESSAGE_CONSOLE_ALLOWED_HOSTS"]["value"])
                for probe in (entry["httpGet"] for entry in probes):
                    assert probe["scheme"] == ("HTTP" if scenario == "without-tls" else "HTTPS")
                    assert (probe["path"], probe["port"]) == ("/healthz", 8080)
                    # The console refuses a Host header that it does not know, as the pod's address is.
                    assert all(header == {"name": "Host", "value": hosts[4]} for header in probe["httpHeaders"])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_grace_periods_leave_time_for_the_drain(scenario: str) -> None:
    for name, pod in pods(scenario):
        if component(pod) not in SERVED:
            continue
        container = pod["spec"]["containers"][0]
        grace = next(int(e["value"]) for e in container["env"] if e["name"].endswith("_GRACE_SECONDS"))
        drain = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        times = 2 if component(pod) == "orchestrator" else 1
        assert pod["spec"]["terminationGracePeriodSeconds"] >= drain + times * grace + 5, name


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_the_orchestrator_has_a_token_of_the_cluster(scenario: str) -> None:
    accounts = {entry["metadata"]["name"]: entry for entry in of_kind(scenario, "ServiceAccount")}
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    for name, pod in pods(scenario):
        if component(pod) == "test":
            continue
        assert pod["spec"]["serviceAccountName"] in accounts, name
    mounted = {component(pod) for _, pod in pods(scenario) if pod["spec"].get("automountServiceAccountToken", True)}
    assert mounted == {"orchestrator"}
    pools = json.loads(
        next(e for e in of_kind(scenario, "ConfigMap") if "pools.json" in e["data"])["data"]["pools.json"]
    )
    for pool in pools["pools"].values():
        assert pool["serviceAccount"] in accounts


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_orchestrators_rights_are_exactly_these(scenario: str) -> None:
    wide = [rule for entry in of_kind(scenario, "ClusterRole") for rule in entry["rules"]]
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}  # of pools with GPUs only
    assert wide == ([nodes] if scenario == "kueue" else [])
    bound = [subject["name"] for entry in of_kind(scenario, "ClusterRoleBinding") for subject in entry["subjects"]]
    assert bound == ["r-dressage-orchestrator"] * len(wide)
    (role,) = of_kind(scenario, "Role")
    rights = {(r, verb) for rule in role["rules"] for r in rule["resources"] for verb in rule["verbs"]}
    looked_at = {(resource, verb) for resource in ("jobs", "pods") for verb in ("get", "list", "watch")}
    assert rights == {
        *looked_at,
        ("jobs", "create"),
        ("jobs", "delete"),
        ("pods/log", "get"),
        ("events", "list"),
        ("events", "watch"),
        ("configmaps", "get"),
    }
    named = next(rule for rule in role["rules"] if rule["resources"] == ["configmaps"])
    owner = _env(scenario, "orchestrator")["DRESSAGE_ORCHESTRATOR_KUBERNETES_OWNER"]["value"]
    assert named["resourceNames"] == [owner]
    assert owner in {entry["metadata"]["name"] for entry in of_kind(scenario, "ConfigMap")}
    (binding,) = of_kind(scenario, "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == ["r-dressage-orchestrator"]


def _env(scenario: str, service: str) -> dict[str, dict[str, str]]:
    (pod,) = [pod for _, pod in pods(scenario) if component(pod) == service]
    return {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}


def test_only_llm_agent_gets_the_providers_keys() -> None:
    holders = []
    for _, pod in pods("external-stores"):
        if "dressage-llm-keys" in json.dumps(pod):
            holders.append(component(pod))
    assert holders == ["llm-agent"]
    assert "dressage-llm-keys" not in json.dumps([e for e in rendered("external-stores") if e["kind"] == "ConfigMap"])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_secrets_reach_only_those_who_need_them(scenario: str) -> None:
    """By key of a Secret: who may read it."""
    allowed = {
        "api-token": {"orchestrator", "test"},
        "run-token-secret": {"orchestrator"},
        **{f"orchestrator-{name}": {"orchestrator", name} for name in ("llm-agent", "judge", "renderer")},
        **{f"judge-{name}": {"judge", name} for name in ("llm-agent", "renderer")},
        "password": {"orchestrator"},
        "url": {"orchestrator"},
        "access-key": SERVICES | {"minio"},
        "secret-key": SERVICES | {"minio"},
    }
    for _, pod in pods(scenario):
        for container in containers(pod):
            for entry in container.get("env", []):
                key = entry.get("valueFrom", {}).get("secretKeyRef", {}).get("key")
                assert key is None or component(pod) in allowed[key], (component(pod), key)
                assert "token" not in str(entry.get("value", "")).lower()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_selectors_select_their_own_pods_and_no_others(scenario: str) -> None:
    by_component = {component(pod): pod for _, pod in pods(scenario)}
    selectors = [(e, e["spec"]["selector"]) for e in of_kind(scenario, "Service")]
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        selectors += [(e, e["spec"]["selector"]["matchLabels"]) for e in of_kind(scenario, kind)]
    assert len(selectors) >= 9
    for entry, selector in selectors:
        chosen = [name for name, pod in by_component.items() if selects(selector, pod)]
        assert chosen == [component(entry)], (entry["kind"], entry["metadata"]["name"])
    for service in of_kind(scenario, "Service"):
        pod = by_component[component(service)]
        ports = {port["name"] for c in pod["spec"]["containers"] for port in c["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for monitor in [*of_kind(scenario, "ServiceMonitor"), *of_kind(scenario, "PodMonitor")]:
        assert selects(monitor["spec"]["selector"]["matchLabels"], by_component[component(monitor)])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_budgets_of_disruption_only_where_two_pods_are(scenario: str) -> None:
    budgets = {component(entry) for entry in of_kind(scenario, "PodDisruptionBudget")}
    assert budgets == (SERVED if scenario == "ha" else set())
    scalers = {component(entry) for entry in of_kind(scenario, "HorizontalPodAutoscaler")}
    assert scalers == ({"llm-agent", "judge"} if scenario == "ha" else set())
    for deployment in of_kind(scenario, "Deployment"):
        # An autoscaler's number must not be set back by an upgrade.
        assert ("replicas" in deployment["spec"]) == (component(deployment) not in scalers)


def test_addresses_lead_to_services_that_exist() -> None:
    ports = {
        (entry["metadata"]["name"], port["port"])
        for entry in of_kind("minimal", "Service")
        for port in entry["spec"]["ports"]
    }
    for service in ("orchestrator", "judge", "console"):
        for name, entry in _env("minimal", service).items():
            if name.endswith("_ADDRESS") and ".svc:" in str(entry.get("value")):
                host, port = str(entry["value"]).removeprefix("dns:///").rsplit(":", 1)
                assert (host.removesuffix(f".{NAMESPACE}.svc"), int(port)) in ports, name
    url = str(_env("minimal", "orchestrator")["DRESSAGE_ORCHESTRATOR_DATABASE_URL"]["value"])
    assert "@r-dressage-postgresql:5432/" in url and ("r-dressage-postgresql", 5432) in ports
    headless = {e["metadata"]["name"] for e in of_kind("minimal", "Service") if e["spec"].get("clusterIP") == "None"}
    assert {"r-dressage-llm-agent", "r-dressage-judge", "r-dressage-renderer"} <= headless


def test_external_stores_replace_the_bundled_ones() -> None:
    assert {component(e) for e in of_kind("external-stores", "StatefulSet")} == {"orchestrator"}
    assert not of_kind("external-stores", "Secret")
    env = _env("external-stores", "orchestrator")
    assert env["DRESSAGE_ORCHESTRATOR_DATABASE_URL"]["valueFrom"] == {
        "secretKeyRef": {"name": "dressage-database", "key": "url"}
    }
    assert env["DRESSAGE_ORCHESTRATOR_STORE_URL"]["value"] == "s3://dressage/production"
    assert env["DRESSAGE_S3_ENDPOINT"]["value"] == "https://s3.example.org"
    for pod in (pod for _, pod in pods("external-stores") if component(pod) in SERVICES):
        container = pod["spec"]["containers"][0]
        authority = next(e["value"] for e in container["env"] if e["name"] == "DRESSAGE_S3_CA_FILE")
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mounts[authority.removesuffix("/ca.crt")])
        assert volume["configMap"] == {"name": "company-ca"}
    (text,) = [e["data"]["pools.json"] for e in of_kind("external-stores", "ConfigMap") if "pools.json" in e["data"]]
    assert {pool["caConfigMap"] for pool in json.loads(text)["pools"].values()} == {"company-ca"}


def test_monitors_come_only_if_the_cluster_has_their_kind_and_are_labelled() -> None:
    monitors = [entry for entry in rendered("monitoring") if entry["kind"] in CUSTOM_KINDS]
    assert {entry["kind"] for entry in monitors} == CUSTOM_KINDS - {"Certificate"}
    assert all(entry["metadata"]["labels"]["release"] == "stack" for entry in monitors)
    assert {component(e) for e in monitors if e["kind"] == "ServiceMonitor"} == SERVED
    plain = helm("template", "r", str(CHART))
    assert plain.returncode == 0 and not any(f"kind: {kind}\n" in plain.stdout for kind in CUSTOM_KINDS)


def test_ingress_shows_the_public_services_only() -> None:
    (ingress,) = [entry for entry in of_kind("ingress-tls", "Ingress") if component(entry) == "orchestrator"]
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "letsencrypt"
    assert ingress["spec"]["tls"] == [{"hosts": ["dressage.example.org"], "secretName": "r-dressage-tls"}]
    paths = [entry["path"] for rule in ingress["spec"]["rules"] for entry in rule["http"]["paths"]]
    assert not any("/dressage.internal.v1.RunService/Work".startswith(path) for path in paths)
    assert any("/dressage.v1.SessionService/CreateSession".startswith(path) for path in paths)


def test_the_console_has_an_ingress_and_a_host_of_its_own() -> None:
    (ingress,) = [entry for entry in of_kind("ingress-tls", "Ingress") if component(entry) == "console"]
    assert ingress["spec"]["tls"] == [{"hosts": ["console.example.org"], "secretName": "r-dressage-tls-console"}]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    (service,) = [entry for entry in of_kind("ingress-tls", "Service") if component(entry) == "console"]
    backend = path["backend"]["service"]
    assert (rule["host"], path["path"], path["pathType"]) == ("console.example.org", "/", "Prefix")
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    env = _env("ingress-tls", "console")
    assert "console.example.org" in json.loads(env["DRESSAGE_CONSOLE_ALLOWED_HOSTS"]["value"])
    assert env["DRESSAGE_CONSOLE_SECURE_COOKIES"]["value"] == "true"
    assert "DRESSAGE_CONSOLE_SECURE_COOKIES" not in _env("minimal", "console")
    # People log in where the orchestrator's signed tokens come from.
    several = _env("principals", "console")
    assert several["DRESSAGE_CONSOLE_OIDC_ISSUER"]["value"] == "https://id.example.org"
    assert several["DRESSAGE_CONSOLE_OIDC_CLIENT_ID"]["value"] == "dressage"
    assert "DRESSAGE_CONSOLE_OIDC_ISSUER" not in env
    # Streams are passed on as they come, and the largest message fits.
    annotations = ingress["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == f"{MAX_MESSAGE_BYTES // 2**20}m"


def test_without_a_host_or_without_the_console_it_has_no_ingress() -> None:
    given = ("--set", "ingress.enabled=true,ingress.host=a.example.org")
    plain = template(*given)
    assert plain.stdout.count("kind: Ingress\n") == 1, plain.stderr
    without = template(*given, "--set", "ingress.console.host=b.example.org,console.enabled=false")
    assert without.returncode == 0 and "r-dressage-console" not in without.stdout, without.stderr


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_objects_of_cert_manager_have_only_its_fields(scenario: str) -> None:
    """By models that are generated from the definitions of cert-manager."""
    certificates = of_kind(scenario, "Certificate")
    for entry in certificates:
        assert entry["apiVersion"] == "cert-manager.io/v1"
        model = Certificate.model_validate(entry)
        # A field that the model does not know is dropped by it.
        assert model.spec and model.spec.model_dump(by_alias=True, exclude_unset=True, mode="json") == entry["spec"]
    assert len(certificates) == (5 if scenario == "cert-manager" else 0)


def test_a_mistake_in_a_certificate_would_be_noticed() -> None:
    spec = of_kind("cert-manager", "Certificate")[0]["spec"]
    unknown = Certificate.model_validate({"spec": {**spec, "dnsName": "a"}}).spec
    assert unknown and unknown.model_dump(by_alias=True, exclude_unset=True) != {**spec, "dnsName": "a"}
    with pytest.raises(ValidationError):
        Certificate.model_validate({"spec": {**spec, "usages": ["serving"]}})


def test_the_chart_has_the_applications_version() -> None:
    chart = (CHART / "Chart.yaml").read_text()
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"', project, re.MULTILINE)
    assert version and f'appVersion: "{version[1]}"' in chart
