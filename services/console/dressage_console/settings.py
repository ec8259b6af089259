"""Settings of the console, from ``DRESSAGE_CONSOLE_*`` and the mounted file."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from dressage.serving.settings import ProcessSettings
from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict


class Settings(ProcessSettings):
    """Settings of the console. It has no token of its own: it passes the caller's on to the orchestrator."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_CONSOLE_", extra="ignore", frozen=True)

    orchestrator_address: str = Field("127.0.0.1:7400", description="host:port of the orchestrator")
    orchestrator_tls_ca_file: Path | None = Field(
        None, description="CA certificates (PEM) that verify the orchestrator; no TLS if not set"
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="host names that browsers may use, without ports; empty: only loopback names on a loopback address, "
        "any name elsewhere",
    )
    secure_cookies: bool = Field(
        False, description="the cookie of the login is for HTTPS only, behind a proxy that ends TLS; own TLS implies it"
    )
    call_seconds: float = Field(300.0, gt=0, le=3600, description="deadline of a call that states none")
    stream_seconds: float = Field(
        6 * 3600.0, gt=0, le=7 * 86400, description="deadline of a stream that states none; watchers then resume it"
    )
    max_streams: int = Field(512, ge=1, le=100_000, description="maximum number of open streams")
    max_connections: int = Field(1_000, ge=1, le=100_000, description="maximum number of open connections")
    max_connections_per_address: int = Field(
        128, ge=0, description="maximum number of open connections of one address, except of proxies; 0: no limit"
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="addresses or networks of proxies whose X-Forwarded-For names the caller; others are not asked",
    )
    oidc_issuer: str = Field(
        "",
        pattern=r"^(https?://[^/?#\s;,'\"]+(/[^?#\s;,'\"]*)?)?$",
        description="identity provider (OpenID Connect) where people log in; empty: the page asks for a token",
    )
    oidc_client_id: str = Field(
        "",
        max_length=200,
        description="the page's client id there, which is the audience that the orchestrator expects",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network)
        return value

    prometheus_url: str = Field(
        "",
        pattern="^(https?://.*)?$",
        description="Prometheus server whose figures the page of the cluster shows; empty: none",
    )
    prometheus_selector: str = Field(
        "",
        max_length=500,
        pattern=r'^([a-zA-Z_]\w*(=|=~|!=|!~)"[^"\\{}]*"(,[a-zA-Z_]\w*(=|=~|!=|!~)"[^"\\{}]*")*)?$',
        description='label matchers that restrict them to this installation, such as namespace="dressage"',
    )
