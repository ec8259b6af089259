"""TLS of the public API and of the services, and the tokens of the services' pairs, as the chart renders them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from dressage.serving.channels import OPTIONS
from dressage.serving.server import GrpcServer, TlsFiles
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.unit.chart.rendering import SCENARIOS, component, of_kind, pods, template

HOST = "r-dressage-orchestrator.lab.svc"
CALLERS = {
    "llm-agent": {"orchestrator", "judge"},
    "renderer": {"orchestrator", "judge"},
    "judge": {"orchestrator"},
}


def container(scenario: str, name: str) -> dict[str, Any]:
    (pod,) = [pod for _, pod in pods(scenario) if component(pod) == name]
    first: dict[str, Any] = pod["spec"]["containers"][0]
    return first


def keys_of(scenario: str, name: str) -> dict[str, str]:
    """Keys of the Secret of tokens that a service reads, by variable."""
    references = ((e["name"], e.get("valueFrom", {}).get("secretKeyRef")) for e in container(scenario, name)["env"])
    return {variable: reference["key"] for variable, reference in references if reference}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_pair_of_services_shares_a_token_of_its_own(scenario: str) -> None:
    for name, callers in CALLERS.items():
        env = {e["name"]: e.get("value") for e in container(scenario, name)["env"]}
        prefix = f"DRESSAGE_{name.upper().replace('-', '_')}"
        accepted = {caller: keys_of(scenario, name)[f"PEER_{caller.upper()}"] for caller in callers}
        assert json.loads(env[f"{prefix}_PEER_TOKENS"]) == {c: f"$(PEER_{c.upper()})" for c in callers}
        sent = {}
        for caller in callers:
            sent[caller] = keys_of(scenario, caller)[
                f"DRESSAGE_{caller.upper()}_{name.upper().replace('-', '_')}_TOKEN"
            ]
        assert sent == accepted and len(set(sent.values())) == len(callers)


def generated(service: str) -> tuple[x509.Certificate, x509.Certificate]:
    """The generated certificate of a service, and its authority."""
    secrets = [e for e in of_kind("minimal", "Secret") if e["type"] == "kubernetes.io/tls"]
    (secret,) = [e for e in secrets if component(e) == service]
    read = [x509.load_pem_x509_certificate(base64.b64decode(secret["data"][key])) for key in ("tls.crt", "ca.crt")]
    return read[0], read[1]


@pytest.mark.parametrize("service", ["orchestrator", "console"])
def test_the_generated_certificate_names_the_service_and_a_port_forward(service: str) -> None:
    leaf, authority = generated(service)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    host = HOST.replace("orchestrator", service)
    assert {host, "localhost", f"{host}.cluster.local"} <= set(names.get_values_for_type(x509.DNSName))
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1")]
    assert leaf.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3000)
    assert leaf.issuer == authority.subject
    key = authority.public_key()
    assert isinstance(key, rsa.RSAPublicKey) and leaf.signature_hash_algorithm is not None
    key.verify(leaf.signature, leaf.tbs_certificate_bytes, padding.PKCS1v15(), leaf.signature_hash_algorithm)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_orchestrator_trainers_and_the_test_use_the_same_certificate(scenario: str) -> None:
    env = {e["name"]: e.get("value") for e in container(scenario, "orchestrator")["env"]}
    test = {e["name"]: e.get("value") for e in container(scenario, "test")["env"]}
    if scenario == "without-tls":
        assert not [name for name in env if "TLS" in name] and test["DRESSAGE_INSECURE"] == "1"
        return
    mounts = {}
    for name in ("orchestrator", "test"):
        (pod,) = [pod for _, pod in pods(scenario) if component(pod) == name]
        (secret,) = [v["secret"] for v in pod["spec"]["volumes"] if v["name"] == "tls"]
        mounts[name] = secret
        mounted = {mount["mountPath"]: mount for mount in container(scenario, name)["volumeMounts"]}
        assert mounted["/etc/dressage/tls"]["readOnly"] is True
    named = "company-tls" if scenario == "external-stores" else "r-dressage-api-tls"
    assert mounts["orchestrator"]["secretName"] == mounts["test"]["secretName"] == named
    assert mounts["test"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "the key is the orchestrator's"
    assert env["DRESSAGE_ORCHESTRATOR_TLS_KEY"] == "/etc/dressage/tls/tls.key"
    assert env["DRESSAGE_ORCHESTRATOR_TRAINER_TLS_CA_FILE"] == test["DRESSAGE_CA_FILE"]
    assert env["DRESSAGE_ORCHESTRATOR_ADVERTISED_ADDRESS"] == test["DRESSAGE_ADDRESS"] == f"{HOST}:50051"
    issued = [entry["kind"] for entry in of_kind(scenario, "Certificate")]
    issued += [entry["type"] for entry in of_kind(scenario, "Secret") if entry["type"] == "kubernetes.io/tls"]
    issuers = {"cert-manager": ["Certificate"] * 5, "external-stores": []}
    assert issued == issuers.get(scenario, ["kubernetes.io/tls"] * 5), "of the API, the console and each service"


def secrets_of_services() -> dict[str, dict[str, bytes]]:
    """The generated files of each service's Secret."""
    data = {entry["metadata"]["name"]: entry["data"] for entry in of_kind("minimal", "Secret")}
    return {
        name: {key: base64.b64decode(value) for key, value in data[f"r-dressage-{name}-tls"].items()}
        for name in CALLERS
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_services_use_tls_among_each_other(scenario: str) -> None:
    for name in CALLERS:
        prefix, served = f"DRESSAGE_{name.upper().replace('-', '_')}", container(scenario, name)
        env = {e["name"]: e.get("value") for e in served["env"]}
        (service,) = [e for e in of_kind(scenario, "Service") if e["metadata"]["name"] == f"r-dressage-{name}"]
        protocol = service["spec"]["ports"][0]["appProtocol"]
        if scenario == "without-tls":
            assert not [entry for entry in env if "TLS" in entry] and protocol == "kubernetes.io/h2c"
            continue
        assert env[f"{prefix}_TLS_CERT"] == "/etc/dressage/tls/tls.crt" and protocol == "https"
        assert {p["containerPort"] for p in served["ports"]} >= {50051, 50052}
        assert env[f"{prefix}_HEALTH_ADDRESS"] == "0.0.0.0:50052"
        assert served["readinessProbe"]["grpc"]["port"] == served["livenessProbe"]["grpc"]["port"] == 50052
        (pod,) = [pod for _, pod in pods(scenario) if component(pod) == name]
        (secret,) = [v["secret"] for v in pod["spec"]["volumes"] if v["name"] == "tls"]
        named = "company-services-tls" if scenario == "external-stores" else f"r-dressage-{name}-tls"
        assert secret["secretName"] == named, "no service holds the key of another"
    if scenario == "without-tls":
        return
    for name, file in (("orchestrator", "/etc/dressage/services/ca.crt"), ("judge", "/etc/dressage/tls/ca.crt")):
        env = {e["name"]: e.get("value") for e in container(scenario, name)["env"]}
        prefix = f"DRESSAGE_{name.upper()}"
        assert env[f"{prefix}_SERVICES_TLS_CA_FILE"] == file
        for callee in ("llm-agent", "renderer"):
            host = env[f"{prefix}_{callee.upper().replace('-', '_')}_ADDRESS"]
            assert host == f"dns:///r-dressage-{callee}.lab.svc:50051", "the name of its certificate"
    (pod,) = [pod for _, pod in pods(scenario) if component(pod) == "orchestrator"]
    (secret,) = [v["secret"] for v in pod["spec"]["volumes"] if v["name"] == "services-ca"]
    assert secret["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "not the key"


def test_cert_manager_signs_each_service_with_its_names() -> None:
    names = {e["spec"]["secretName"]: set(e["spec"]["dnsNames"]) for e in of_kind("cert-manager", "Certificate")}
    for name in CALLERS:
        host = f"r-dressage-{name}.lab.svc"
        assert {host, f"{host}.cluster.local"} <= names[f"r-dressage-{name}-tls"]


async def greeted(files: dict[str, bytes], authority: bytes, host: str, folder: Path) -> str:
    """The code of a call to a server with a rendered certificate, by a client that dials a host name."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    tls = TlsFiles(folder / "tls.crt", folder / "tls.key")
    server = GrpcServer(service_name="test", address="127.0.0.1:0", tls=tls, grace_seconds=0.1)
    address = await server.start()
    trusted = grpc.ssl_channel_credentials(authority)
    override = ("grpc.ssl_target_name_override", host)  # in place of the cluster's DNS
    try:
        async with grpc.aio.secure_channel(address, trusted, options=[*OPTIONS, override]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
            return "OK"
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    finally:
        await server.stop()


async def test_rendered_certificates_serve_their_service_and_no_other(tmp_path: Path) -> None:
    generated = secrets_of_services()
    authorities = {files["ca.crt"] for files in generated.values()}
    assert len(authorities) == 1 and len({files["tls.key"] for files in generated.values()}) == 3
    (authority,) = authorities
    for name, files in generated.items():
        assert await greeted(files, authority, f"r-dressage-{name}.lab.svc", tmp_path) == "OK"
    other = await greeted(generated["renderer"], authority, "r-dressage-judge.lab.svc", tmp_path)
    assert other == "UNAVAILABLE", "a service cannot pose as another one"
    (api,) = [e for e in of_kind("minimal", "Secret") if e["metadata"]["name"] == "r-dressage-api-tls"]
    wrong = base64.b64decode(api["data"]["ca.crt"])
    assert await greeted(generated["judge"], wrong, "r-dressage-judge.lab.svc", tmp_path) == "UNAVAILABLE"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_console_trusts_the_orchestrator_and_has_a_key_of_its_own(scenario: str) -> None:
    env = {e["name"]: e.get("value") for e in container(scenario, "console")["env"]}
    assert env["DRESSAGE_CONSOLE_ORCHESTRATOR_ADDRESS"] == f"{HOST}:50051"
    (pod,) = [pod for _, pod in pods(scenario) if component(pod) == "console"]
    secrets = {v["name"]: v["secret"] for v in pod["spec"]["volumes"] if "secret" in v}
    if scenario == "without-tls":
        assert not secrets and not [name for name in env if "TLS" in name]
        return
    folders = {mount["name"]: mount["mountPath"] for mount in container(scenario, "console")["volumeMounts"]}
    assert env["DRESSAGE_CONSOLE_ORCHESTRATOR_TLS_CA_FILE"] == f"{folders['authority']}/ca.crt"
    assert env["DRESSAGE_CONSOLE_TLS_KEY"] == f"{folders['tls']}/tls.key"
    given = scenario == "external-stores"
    assert secrets["authority"]["secretName"] == ("company-tls" if given else "r-dressage-api-tls")
    assert secrets["authority"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "the key is the orchestrator's"
    assert secrets["tls"]["secretName"] == ("company-tls" if given else "r-dressage-console-tls")


def test_cert_managers_certificate_has_the_same_names() -> None:
    (certificate,) = [
        e for e in of_kind("cert-manager", "Certificate") if e["spec"]["secretName"] == "r-dressage-api-tls"
    ]
    assert {HOST, "localhost", "dressage.lab.example.org"} <= set(certificate["spec"]["dnsNames"])
    assert certificate["spec"]["issuerRef"] == {
        "name": "cluster-authority",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }


def test_an_ingress_reaches_orchestrator_and_console_by_tls() -> None:
    protocol = "nginx.ingress.kubernetes.io/backend-protocol"
    protocols = {component(e): e["metadata"]["annotations"][protocol] for e in of_kind("ingress-tls", "Ingress")}
    assert protocols == {"orchestrator": "GRPCS", "console": "HTTPS"}
    host = "ingress.host=dressage.example.org,ingress.console.host=console.example.org"
    done = template("--show-only", "templates/ingress.yaml", "--set", f"ingress.enabled=true,{host},tls.enabled=false")
    assert "backend-protocol: GRPC\n" in done.stdout and "backend-protocol: HTTP\n" in done.stdout, done.stderr
