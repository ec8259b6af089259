"""nginx as a TLS reverse proxy, configured from the chart's Ingresses as an Ingress controller would do it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ANNOTATION = "nginx.ingress.kubernetes.io/"
UNPACKED = Path(__file__).parents[2] / ".tools" / "nginx" / "usr" / "sbin" / "nginx"

_FRAME = """\
worker_processes 1;
pid {scratch}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy; fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi; scgi_temp_path {scratch}/scgi;
{servers}}}
"""
_SERVER = """\
  server {{
    listen {listen} ssl http2;
    server_name {host};
    ssl_certificate {certificate}/tls.crt;
    ssl_certificate_key {certificate}/tls.key;
{locations}    location / {{ return 404; }}
  }}
"""


def program() -> str | None:
    """nginx, installed or unpacked by `tools/system-packages nginx`."""
    return str(UNPACKED) if UNPACKED.exists() else shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")


def configuration(
    ingresses: Iterable[dict[str, Any]],
    *,
    listen: str,
    scratch: Path,
    upstream: Callable[[str, str], str],
    certificate: Callable[[str], Path],
) -> str:
    """The text of nginx.conf.

    :param listen: host:port, or a port.
    :param scratch: a folder that nginx may write.
    :param upstream: host:port of a Service's port, both by name.
    :param certificate: folder of a Secret with `tls.crt` and `tls.key`, by the Secret's name.
    """
    servers = ""
    for ingress in ingresses:
        spec, annotations = ingress["spec"], ingress["metadata"]["annotations"]
        secrets = {host: entry["secretName"] for entry in spec["tls"] for host in entry["hosts"]}
        for rule in spec["rules"]:
            paths = rule["http"]["paths"]
            locations = "".join(_location(path, annotations, upstream) for path in paths)
            # A path of the Ingress itself replaces the refusal of all others.
            frame = _SERVER.replace("    location / {{ return 404; }}\n", "") if _whole(paths) else _SERVER
            folder = certificate(secrets[rule["host"]])
            servers += frame.format(listen=listen, host=rule["host"], certificate=folder, locations=locations)
    return _FRAME.format(scratch=scratch, servers=servers)


def _whole(paths: list[dict[str, Any]]) -> bool:
    return any(path["path"] == "/" for path in paths)


def _location(path: dict[str, Any], annotations: dict[str, str], upstream: Callable[[str, str], str]) -> str:
    """One path; nginx's controller reads `ImplementationSpecific` as a prefix, too."""
    assert path["pathType"] in ("Prefix", "ImplementationSpecific"), path
    service = path["backend"]["service"]
    protocol = annotations[f"{ANNOTATION}backend-protocol"].lower()
    kind = "grpc" if protocol.startswith("grpc") else "proxy"
    lines = [f"{kind}_pass {protocol}://{upstream(service['name'], service['port']['name'])};"]
    lines += [f"{kind}_{way}_timeout {annotations[f'{ANNOTATION}proxy-{way}-timeout']}s;" for way in ("read", "send")]
    if body := annotations.get(f"{ANNOTATION}proxy-body-size"):
        lines.append(f"client_max_body_size {body};")
    if kind == "proxy":
        lines += ["proxy_http_version 1.1;", 'proxy_set_header Connection "";', "proxy_set_header Host $http_host;"]
        lines.append(f"proxy_buffering {annotations[f'{ANNOTATION}proxy-buffering']};")
    return f"    location {path['path']} {{ {' '.join(lines)} }}\n"
