"""The methods that are installed, by entry points of the group ``dressage.methods``; each names a `Method` object."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_orchestrator.lifecycle.method import Method

GROUP = "dressage.methods"
DEFAULT = "reward"


class Methods:
    """The methods of this server.

    :param methods: by name.
    """

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = dict(methods)

    @classmethod
    def installed(cls) -> Methods:
        """All that are registered.

        :raises FailedPrecondition: when one cannot be loaded, or two have one name.
        """
        found: dict[str, Method] = {}
        for entry in entry_points(group=GROUP):
            try:
                method: Method = entry.load()
            except Exception as error:
                message = f"the method {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
                raise FailedPrecondition(message, reason="METHOD_BROKEN") from error
            if found.setdefault(entry.name, method) is not method:
                raise FailedPrecondition(f"two packages register a method {entry.name!r}", reason="METHOD_TWICE")
        return cls(found)

    @property
    def names(self) -> list[str]:
        """Names of the methods, in order."""
        return sorted(self._methods)

    def of(self, spec: v1.SessionSpec) -> Method:
        """The method that a spec asks for.

        :raises InvalidArgument: when it is not installed.
        """
        chosen = spec.WhichOneof("method_spec") or DEFAULT
        if chosen == "custom":
            return self._custom(spec)
        if chosen not in self._methods:
            message = f"spec.method_spec: method not available (got {chosen}); expected {' or '.join(self.names)}"
            raise InvalidArgument(message, field="spec.method_spec", reason="METHOD_NOT_AVAILABLE")
        return self._methods[chosen]

    def _custom(self, spec: v1.SessionSpec) -> Method:
        wanted = spec.custom.TypeName()
        for method in self._methods.values():
            if method.spec_type.DESCRIPTOR.full_name == wanted:
                return method
        message = (
            f"spec.custom: no installed method has such settings (got {wanted}); installed: {', '.join(self.names)}"
        )
        raise InvalidArgument(message, field="spec.custom", reason="METHOD_NOT_AVAILABLE")
