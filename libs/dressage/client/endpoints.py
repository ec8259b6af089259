"""Where a client connects, whom it trusts, and what it refuses: to send a token in clear to another machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dressage import errors
from dressage.addresses import is_loopback, split_address

CA_VARIABLE, INSECURE_VARIABLE = "DRESSAGE_CA_FILE", "DRESSAGE_INSECURE"
_YES = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Trust:
    """Whom a client trusts."""

    ca_file: Path | None = None
    """CA certificates (PEM) that verify servers, with TLS where the address names no scheme; None: the system's."""
    insecure: bool = False
    """Whether a token may be sent in clear to another machine."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Trust:
        """Return what `$DRESSAGE_CA_FILE` and `$DRESSAGE_INSECURE` state."""
        file = environ.get(CA_VARIABLE)
        return cls(Path(file) if file else None, environ.get(INSECURE_VARIABLE, "").lower() in _YES)


@dataclass(frozen=True)
class Endpoint:
    """A server as a client reaches it."""

    address: str
    """`host:port`."""
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    trust: Trust = field(default_factory=Trust)

    @classmethod
    def parse(cls, address: str, token: str | None, trust: Trust) -> Endpoint:
        """Return the endpoint of `host:port`, `http://host:port` or `https://host:port`.

        Without a scheme TLS is used if there is a CA file.

        :raises InvalidArgument: for another form, or if the token would be sent in clear to another machine.
        """
        scheme, separator, rest = address.strip().partition("://")
        bare = (rest if separator else scheme).rstrip("/")
        if separator and scheme not in ("http", "https"):
            raise errors.InvalidArgument(field="address", value=address, expected="HOST:PORT or https://HOST:PORT")
        host, _ = split_address(bare)
        tls = scheme == "https" if separator else trust.ca_file is not None
        if token and not tls and not trust.insecure and not is_loopback(host):
            raise errors.InvalidArgument(
                field="address",
                problem="the token would be sent without encryption",
                value=address,
                expected="https://HOST:PORT, or a CA file (--ca-file or DRESSAGE_CA_FILE)",
                remedy="To send it all the same, set --insecure or DRESSAGE_INSECURE=1.",
                reason="TOKEN_IN_CLEAR",
            )
        return cls(bare, token, tls, trust)

    @property
    def url(self) -> str:
        """The address with its scheme, from which `parse` makes the same endpoint."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def open(self, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        """Return a channel; it connects on the first call.

        :raises InvalidArgument: if the CA file cannot be read.
        """
        if not self.tls:
            return grpc.aio.insecure_channel(self.address, options=options)
        return grpc.aio.secure_channel(self.address, grpc.ssl_channel_credentials(self._authorities()), options=options)

    def _authorities(self) -> bytes | None:
        file = self.trust.ca_file
        if file is None:
            return None
        try:
            pem = file.read_bytes()
        except OSError as error:
            raise errors.InvalidArgument(
                field="ca_file", problem=str(error.strerror), value=str(file), expected="CA certificates (PEM)"
            ) from error
        if b"-----BEGIN CERTIFICATE" not in pem:
            raise errors.InvalidArgument(field="ca_file", value=str(file), expected="CA certificates (PEM)")
        return pem
