"""Typed settings of a service, from environment variables and a mounted TOML file, validated on start.

A service subclasses `ServingSettings` with its own ``env_prefix``. `load` ends the process with one line for each invalid
value. Precedence: arguments, environment, file, default.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

CONFIG_VARIABLE = "DRESSAGE_CONFIG"


class ProcessSettings(BaseSettings):
    """Settings that every server process has."""

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_", extra="ignore", frozen=True)

    address: str = Field("127.0.0.1:0", description="host:port to listen on; port 0 chooses a free one")
    metrics_address: str | None = Field(None, description="host:port of the Prometheus endpoint; none if not set")
    log_format: Literal["json", "text"] = Field("json", description="one JSON object a line, or text for people")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe level that is logged"
    )
    tls_cert: Path | None = Field(
        None, description="certificate chain (PEM) of this server; TLS on the address. A replaced file is read again"
    )
    tls_key: Path | None = Field(None, description="private key (PEM) of the certificate")
    grace_seconds: float = Field(
        10.0, ge=0, le=600, description="seconds that running calls may take to end on SIGTERM"
    )

    @field_validator("tls_key")
    @classmethod
    def _both_or_neither(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("tls_cert") is None):
            raise ValueError("TLS needs both TLS_CERT and TLS_KEY")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order of precedence: arguments, environment, mounted file (``$DRESSAGE_CONFIG``)."""
        path = os.environ.get(CONFIG_VARIABLE)
        file = (TomlConfigSettingsSource(settings_cls, path),) if path else ()
        return (init_settings, env_settings, *file)


class ServingSettings(ProcessSettings):
    """Settings that every gRPC service has."""

    auth_token: SecretStr | None = Field(None, description="bearer token that callers must send")
    peer_tokens: dict[str, SecretStr] = Field(
        default_factory=dict, description="bearer tokens of the services that call this one, by their names"
    )
    health_address: str | None = Field(
        None, description="host:port of health checks without TLS, for probes; health is on the address as well"
    )

    def callers(self) -> dict[str, SecretStr]:
        """Tokens of everybody who may call, by name."""
        own = {"client": self.auth_token} if self.auth_token is not None else {}
        return {**self.peer_tokens, **own}


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)


def load(kind: type[SettingsT]) -> SettingsT:
    """Read settings; for invalid values, end the process (exit status 2) with one line each, without secrets."""
    try:
        return kind()
    except ValidationError as error:
        prefix = str(kind.model_config.get("env_prefix", ""))
        for problem in error.errors(include_input=False):
            field = ".".join(str(part) for part in problem["loc"])
            print(f"setting {prefix}{field.upper()}: {problem['msg']}", file=sys.stderr)
        raise SystemExit(2) from None
