"""Which model performs a role of a session, with its effort and its endpoint; names that are no language models. Pure.

A session has a model, and may have others for single roles or for groups of roles. The most specific entry decides, field by
field: the role's, its group's, the session's.
"""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from dressage.serving.model_names import EXPECTED, is_model_name

TEMPLATE = "template/v1"
"""The built-in author."""
RECORDED = "recorded/"
"""Prefix of recorded sessions, which replay the replies of a model."""
USER = "user"
"""Author of proposals by people."""


def is_language_model(model: str) -> bool:
    """Whether a provider is called: not for the built-in author and recorded replies."""
    return model not in ("", TEMPLATE) and not model.startswith(RECORDED)


VIDEO = "video"
_ROLES = {
    field.name: field.GetOptions().Extensions[agent_pb.role_group]
    for field in agent_pb.Task.DESCRIPTOR.oneofs_by_name["role"].fields
}
GROUPS = {role: group for role, group in _ROLES.items() if group}
"""Groups of roles that one name chooses a model for, from the proto."""
# The roles of `video` have no entry of their own: the service judge performs them with one model.
NAMES = tuple(sorted({role for role, group in _ROLES.items() if group != VIDEO} | set(GROUPS.values())))
"""Names that a spec may choose models for."""


def model_of(spec: v1.SessionSpec, role: str) -> v1.RoleModel:
    """Return the model of a role or of a group, with all fields that the spec sets."""
    chosen = v1.RoleModel(model=spec.model, thinking=spec.thinking)
    for name in (GROUPS.get(role, ""), role):  # field by field, the more specific one last (decision 0049)
        if name in spec.roles:
            chosen.MergeFrom(spec.roles[name])
    return chosen


def models_of(spec: v1.SessionSpec) -> list[v1.RoleModel]:
    """Return the models of a session: its own, then those of single roles, each once."""
    models = [v1.RoleModel(model=spec.model), *(model_of(spec, name) for name in sorted(spec.roles))]
    unique: dict[tuple[str, str], v1.RoleModel] = {}
    for entry in models:
        unique.setdefault((entry.model, entry.api_base), entry)
    return list(unique.values())


def check(spec: v1.SessionSpec) -> None:
    """Refuse unknown roles, and names of models that are none, such as addresses.

    :raises InvalidArgument: naming the entry.
    """
    for field, model in (("spec.model", spec.model), *(("spec.roles", entry.model) for entry in spec.roles.values())):
        if model and not is_model_name(model):
            raise InvalidArgument(field=field, value=model, expected=EXPECTED)
    for name in spec.roles:
        if name not in NAMES:
            raise InvalidArgument(field="spec.roles", value=name, expected=f"roles among {', '.join(NAMES)}")
