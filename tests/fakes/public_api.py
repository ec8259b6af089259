"""The public API as its protos describe it: every method of every service of `dressage.v1`."""

from __future__ import annotations

import importlib
import pkgutil

import dressage.api.v1
from google.protobuf.descriptor import MethodDescriptor

_MODULES = (
    importlib.import_module(f"dressage.api.v1.{module.name}")
    for module in pkgutil.iter_modules(dressage.api.v1.__path__)
    if module.name.endswith("_pb2")
)

METHODS: dict[str, MethodDescriptor] = {
    f"{service.full_name}/{method.name}": method
    for module in _MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""By `package.Service/Method`."""
