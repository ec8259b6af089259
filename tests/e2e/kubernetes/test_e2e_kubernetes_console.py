"""The console through a TLS reverse proxy, which is configured from the Ingresses of the installation."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from dressage.client import Client, Trust

from tests.e2e.kubernetes.installation import CONSOLE_HOST, HTTP, VIEWER, Installation
from tests.e2e.kubernetes.provider import SECURITY
from tests.servers import console_behind_proxy as checks
from tests.servers import proxy

IMAGE = os.environ.get("DRESSAGE_E2E_NGINX_IMAGE", "")
PORT = 8443

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not IMAGE, reason="needs DRESSAGE_E2E_NGINX_IMAGE (docs/kubernetes.md)"),
]


@pytest.fixture(scope="module")
def site(installed: Installation) -> Iterator[checks.Site]:
    authority = start_proxy(installed)
    with installed.space.forwarded("pod/proxy", PORT) as address:
        yield checks.Site(address, CONSOLE_HOST, authority, installed.token, VIEWER)


@pytest.fixture(scope="module")
def session(site: checks.Site) -> Iterator[str]:
    name = checks.waiting_session(site)
    yield name
    with site.user() as user:
        assert checks.call(user, "DeleteSession", {"name": name, "force": True}).status_code == 200


def start_proxy(installed: Installation) -> str:
    """Start nginx as a pod, with certificates in the Secrets that the Ingresses name; the authority's certificate."""
    space = installed.space
    ingresses = [space.get("ingress", installed.name(component)) for component in ("orchestrator", "console")]
    authority = trustme.CA()
    certificates = {tls["secretName"]: tls["hosts"] for entry in ingresses for tls in entry["spec"]["tls"]}
    for name, hosts in certificates.items():
        leaf = authority.issue_cert(*hosts, "127.0.0.1")
        chain = "".join(pem.bytes().decode() for pem in leaf.cert_chain_pems)
        data = {"tls.crt": chain, "tls.key": leaf.private_key_pem.bytes().decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls"}
        space.apply({**secret, "stringData": data})

    def upstream(service: str, port: str) -> str:
        number = next(p["port"] for p in space.get("service", service)["spec"]["ports"] if p["name"] == port)
        return f"{service}.{space.name}.svc.cluster.local:{number}"

    text = proxy.configuration(
        ingresses,
        listen=str(PORT),
        scratch=Path("/tmp"),
        upstream=upstream,
        certificate=lambda secret: Path("/etc/certificates", secret),
    )
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "proxy"}, "data": {"nginx.conf": text}}
    space.run("delete", "pod", "proxy", "--ignore-not-found", "--grace-period=1", timeout=120)
    space.apply(config, _pod(sorted(certificates)))
    space.run("wait", "--for=condition=Ready", "pod/proxy", "--timeout=180s", timeout=200)
    return authority.cert_pem.bytes().decode()


def _pod(secrets: list[str]) -> dict[str, Any]:
    folders = [(name, f"/etc/certificates/{name}", {"secret": {"secretName": name}}) for name in secrets]
    folders += [("config", "/etc/proxy", {"configMap": {"name": "proxy"}}), ("tmp", "/tmp", {"emptyDir": {}})]
    container = {
        "name": "nginx",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": SECURITY,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path, _ in folders],
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": name, **source} for name, _, source in folders],
    }
    # Network policies admit clients with this label.
    labels = {"app": "proxy", "dressage.io/client": "true"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proxy", "labels": labels}, "spec": spec}


def test_the_page_is_served_compressed_and_under_its_policy(site: checks.Site) -> None:
    checks.check_page(site)


def test_a_login_is_required_and_is_for_https_only(site: checks.Site) -> None:
    checks.check_login(site)


def test_a_viewer_may_not_write(site: checks.Site, session: str) -> None:
    checks.check_viewer(site, session)


def test_events_stream_through_the_proxy(site: checks.Site, session: str) -> None:
    checks.check_stream(site, session)


def test_an_artifact_is_read_in_parts(site: checks.Site, session: str) -> None:
    checks.check_artifact(site, session)


def test_grpc_comes_through_the_other_host(site: checks.Site, tmp_path: Path) -> None:
    file = tmp_path / "authority.crt"
    file.write_text(site.authority)
    # Its certificate names 127.0.0.1 as well, which the port-forward is.
    with Client.connect(site.address, token=site.token, trust=Trust(file)) as client:
        list(client.list_sessions())


def test_the_console_has_the_charts_certificate_inside_the_cluster(installed: Installation) -> None:
    authority = installed.secret(installed.name("console-tls"), "ca.crt")
    with installed.space.forwarded(f"service/{installed.name('console')}", HTTP) as address:
        verify = ssl.create_default_context(cadata=authority)
        answer = httpx.get(f"https://{address}/healthz", verify=verify, timeout=30)
        assert answer.text == "ok"
        unknown = httpx.get(f"https://{address}/healthz", headers={"host": "other"}, verify=verify, timeout=30)
        assert unknown.status_code == 403
