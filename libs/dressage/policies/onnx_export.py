"""The policy as one ONNX graph: raw observation in, bounded action (or the index of a discrete one) out."""

from __future__ import annotations

import os
from pathlib import Path

from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.policies.bundle import Policy, write_file
from dressage.policies.kinds import kind
from dressage.policies.onnx_graph import Graph


def to_onnx(policy: Policy, path: str | os.PathLike[str]) -> Path:
    """Write the deterministic policy as an ONNX file, atomically.

    Input ``observation`` is [N, D] float32; for a table [N] int64. Output ``action`` is [N, A] float32 within the action
    bounds; for discrete actions [N] int64.

    :raises FailedPrecondition: if the package ``onnx`` is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise FailedPrecondition(
            f"exporting to ONNX needs the package onnx: {install_command('trainer')}", reason="MISSING_PACKAGE"
        ) from error
    card, graph = policy.description, Graph(onnx)
    kind(card.kind).add_to_graph(graph, policy.weights, card)
    model = graph.model({"environment": card.environment})
    onnx.checker.check_model(model)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, model.SerializeToString())
    return target
