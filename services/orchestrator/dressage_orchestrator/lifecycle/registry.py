"""Registry of installed methods, from entry points of the group ``dressage.methods``, which refer to `Method` objects."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_orchestrator.lifecycle.method import Method

GROUP = "dressage.methods"
DEFAULT = "reward"


class Methods:
    """Methods of this server.

    :param methods: methods by name.
    """

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = dict(methods)

    @classmethod
    def load(cls) -> Methods:
        """Load all registered methods.

        :raises FailedPrecondition: when a method cannot be loaded, or two have the same name.
        """
        methods: dict[str, Method] = {}
        for entry in entry_points(group=GROUP):
            try:
                method: Method = entry.load()
            except Exception as error:
                message = f"the method {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
                raise FailedPrecondition(message, reason="METHOD_BROKEN") from error
            if methods.setdefault(entry.name, method) is not method:
                raise FailedPrecondition(f"two packages register a method {entry.name!r}", reason="METHOD_TWICE")
        return cls(methods)

    @property
    def names(self) -> list[str]:
        """Names of the methods, sorted."""
        return sorted(self._methods)

    def of(self, spec: v1.SessionSpec) -> Method:
        """Select the method of a spec.

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
        type_name = spec.custom.TypeName()
        for method in self._methods.values():
            if method.spec_type.DESCRIPTOR.full_name == type_name:
                return method
        message = (
            f"spec.custom: no installed method has these settings (got {type_name}); installed: {', '.join(self.names)}"
        )
        raise InvalidArgument(message, field="spec.custom", reason="METHOD_NOT_AVAILABLE")
