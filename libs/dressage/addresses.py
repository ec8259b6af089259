"""Addresses of servers: `host:port`, and whether a host is this machine's loopback interface."""

from __future__ import annotations

import ipaddress

from dressage import errors


def split_address(address: str, *, field: str = "address") -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`.

    :param field: what the error names.
    :raises InvalidArgument: if it is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 65536 or "/" in host:
        raise errors.InvalidArgument(field=field, value=address, expected="HOST:PORT, for example 127.0.0.1:7400")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether a host, without a port, is this machine by its loopback interface."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_private(address: str) -> bool:
    """Whether only processes of this machine reach an address: loopback with any port, also 0, or a Unix socket."""
    return address.startswith("unix:") or is_loopback(address.rpartition(":")[0])
