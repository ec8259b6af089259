"""Who calls, and who may change a resource: its owner with the role user, and administrators."""

from __future__ import annotations

from dressage.errors import PermissionDenied
from dressage.serving.access import Principal, Role, current_principal


def caller() -> str:
    """Name of the principal of the running call; empty without one."""
    principal = current_principal.get()
    return principal.name if principal is not None else ""


def check_change(principal: Principal | None, name: str, owner: str) -> None:
    """Check that a principal may change a resource.

    :param principal: None: a server without authentication, where every caller may.
    :param owner: name of the principal that it belongs to; empty: only administrators may change it.
    :raises PermissionDenied: naming the owner.
    """
    if principal is None or principal.role is Role.ADMIN:
        return
    if owner != principal.name:
        belongs = f"belongs to {owner}; only its owner and" if owner else "has no owner; only"
        message = f"{name} {belongs} administrators may change it"
        raise PermissionDenied(message, reason="NOT_THE_OWNER", metadata={"owner": owner})
    if principal.role < Role.USER:
        message = f"{name}: {owner} has the role {principal.role.name.lower()}; a change needs the role user"
        raise PermissionDenied(message, reason="ROLE_TOO_LOW")
