"""Settings of the S3 store, from ``DRESSAGE_S3_*``, the same in every service."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

_CONFIG_VARIABLE = "DRESSAGE_CONFIG"
_TABLE = "s3"
_AWS = "https://s3.amazonaws.com"


class S3Options(BaseSettings):
    """Settings of the S3 store, from ``DRESSAGE_S3_*`` or the table ``[s3]`` of the mounted file (``$DRESSAGE_CONFIG``).

    The bucket and the prefix in it come from the service's ``store_url`` (``s3://bucket/prefix``).
    """

    model_config = SettingsConfigDict(env_prefix="DRESSAGE_S3_", extra="ignore", frozen=True)

    endpoint: str = Field(_AWS, description="http:// or https:// address of the store")
    public_endpoint: str | None = Field(
        None, description="address of the store in presigned URLs, which trainers use; default: `endpoint`"
    )
    region: str = Field("us-east-1", min_length=1, description="region that requests are signed for")
    access_key: SecretStr | None = Field(None, description="access key; see also access_key_file")
    secret_key: SecretStr | None = Field(None, description="secret key; see also secret_key_file")
    session_token: SecretStr | None = Field(None, description="token of temporary credentials")
    access_key_file: Path | None = Field(
        None, description="mounted file with the access key; read again when it changes"
    )
    secret_key_file: Path | None = Field(
        None, description="mounted file with the secret key; read again when it changes"
    )
    ca_file: Path | None = Field(None, description="PEM file of the certificate authority of the store")
    addressing: Literal["auto", "path", "virtual"] = Field(
        "auto", description="place of the bucket in URLs: the path, the host name, or chosen by the endpoint"
    )
    create_bucket: bool = Field(False, description="create the bucket if it is missing")
    abort_incomplete_days: int = Field(
        2,
        ge=0,
        le=365,
        description="days after which buckets created here drop unfinished uploads; 0: never",
    )
    part_bytes: int = Field(
        16 << 20, ge=5 << 20, le=512 << 20, description="larger files are uploaded in parts of this size"
    )
    put_grant_seconds: int = Field(60, ge=30, le=604_800, description="lifetime of a presigned URL for an upload")
    grant_seconds: int = Field(3600, ge=60, le=604_800, description="lifetime of a presigned URL")
    connect_seconds: float = Field(5.0, gt=0, le=120, description="timeout for connecting")
    read_seconds: float = Field(60.0, gt=0, le=3600, description="timeout for reading")
    retry_seconds: float = Field(
        60.0, ge=0, le=3600, description="how long a request is retried while the store is unavailable"
    )

    @field_validator("endpoint", "public_endpoint")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError("expected http://host:port or https://host:port without a path")
        if parts.username or parts.password:
            raise ValueError("expected a URL without credentials; set them in DRESSAGE_S3_ACCESS_KEY and _SECRET_KEY")
        return f"{parts.scheme}://{parts.netloc}"

    @field_validator("ca_file")
    @classmethod
    def _authority(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError(f"there is no file {str(value)!r}; expected a PEM file of certificates")
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
        """Order of precedence: arguments, environment, mounted file."""
        return (init_settings, env_settings, InitSettingsSource(settings_cls, _file_settings()))


def _file_settings() -> dict[str, Any]:
    path = os.environ.get(_CONFIG_VARIABLE)
    if not path:
        return {}
    try:
        table = tomllib.loads(Path(path).read_text()).get(_TABLE, {})
    except FileNotFoundError:  # as for the services' own settings
        return {}
    return table if isinstance(table, dict) else {}
