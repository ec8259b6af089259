"""Builds the console from its settings and starts it."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import structlog
from dressage.serving.channels import connect
from dressage.serving.server import RunningService
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from dressage_console import artifacts, login
from dressage_console import usage as figures
from dressage_console.assets import FOLDER, Assets
from dressage_console.connections import ConnectionLimits
from dressage_console.forwarding import SERVICES, KnownCallers, Limits, PublicApi, Upstream
from dressage_console.http_server import HttpServer, bind
from dressage_console.protection import LOOPBACK_NAMES, Protection
from dressage_console.settings import Settings
from dressage_console.usage import Usage


def application(
    upstream: Upstream,
    *,
    hosts: tuple[str, ...] = (),
    static: Path = FOLDER,
    secure_cookies: bool = False,
    usage: Usage | None = None,
    provider: login.Provider | None = None,
) -> Starlette:
    """The console as an ASGI application.

    :param hosts: host names that browsers may use; empty: any.
    :param static: folder of the built page.
    :param secure_cookies: the cookie of the login is for HTTPS only.
    :param usage: figures of a Prometheus server; None: there is none.
    :param provider: where people log in; None: with a token only.
    """

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok")

    callers = KnownCallers(upstream, login.authorization)
    api = [PublicApi(service, upstream, login.authorization, callers) for service in SERVICES.values()]
    routes = [
        *(Mount(service.path, app=service) for service in api),
        Route("/healthz", health),
        *login.routes(upstream, secure=secure_cookies, provider=provider),
        *artifacts.routes(upstream),
        *figures.routes(upstream, usage or Usage("")),
        *Assets(static, provider=provider.origin if provider else "").routes(),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Protection, hosts=hosts)])


async def start(settings: Settings) -> RunningService:
    """Start the service.

    :raises FailedPrecondition: when the address cannot be listened on.
    """
    listening = bind(settings.address)
    host = listening.getsockname()[0]
    ca = settings.orchestrator_tls_ca_file
    channel = connect(settings.orchestrator_address, tls_ca=ca.read_text() if ca else "")
    limits = Limits(settings.call_seconds, settings.stream_seconds, settings.max_streams)
    upstream = Upstream(channel, limits)
    hosts = settings.allowed_hosts or (LOOPBACK_NAMES if ipaddress.ip_address(host).is_loopback else ())
    tls = (settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
    usage = Usage(settings.prometheus_url, settings.prometheus_selector)
    issuer = settings.oidc_issuer
    provider = login.Provider(issuer, settings.oidc_client_id) if issuer and settings.oidc_client_id else None
    app = application(upstream, hosts=hosts, secure_cookies=settings.secure_cookies, usage=usage, provider=provider)
    connections = ConnectionLimits(
        total=settings.max_connections,
        per_address=settings.max_connections_per_address,
        proxies=settings.trusted_proxies,
    )
    server = HttpServer(app, listening, grace_seconds=settings.grace_seconds, tls=tls, limits=connections)
    address = await server.start()
    structlog.get_logger("dressage.console").info("listening", address=address)

    async def stop() -> None:
        upstream.cancel_streams()
        await server.stop()
        await channel.close()

    return RunningService(address, stop)
