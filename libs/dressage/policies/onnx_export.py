"""The policy as one ONNX graph: raw observation in, bounded action (or the number of one) out.

Normalisation is part of the graph and is done in double, as in training: a component with a small spread around a
large mean would lose its digits in float32.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dressage.errors import FailedPrecondition
from dressage.policies.bundle import Policy, write_file

_OPSET = 17
_IR_VERSION = 9


def to_onnx(policy: Policy, path: str | os.PathLike[str]) -> Path:
    """Write the deterministic policy as an ONNX file, at once or not at all.

    Input ``observation`` is [N, D] float32, output ``action`` [N, A] float32 within the action bounds, or [N] int64
    for numbered actions.

    :raises FailedPrecondition: where the package ``onnx`` is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise FailedPrecondition(
            "exporting to ONNX needs the package onnx: pip install 'dressage[trainer]'", reason="MISSING_PACKAGE"
        ) from error
    model = _model(onnx, policy)
    onnx.checker.check_model(model)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, model.SerializeToString())
    return target


def _model(onnx: Any, policy: Policy) -> Any:
    make, card = onnx.helper, policy.description
    constants: dict[str, np.ndarray[Any, Any]] = {}
    nodes: list[Any] = []

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(make.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(name: str, value: Any, dtype: Any) -> str:
        constants[name] = np.asarray(value, dtype)
        return name

    x = "observation"
    if card.normalize_observation:
        scale = 1.0 / np.sqrt(np.asarray(policy.weights["obs_var"], np.float64) + card.epsilon)
        x = node("Cast", [x], "observation_f64", to=onnx.TensorProto.DOUBLE)
        x = node("Sub", [x, constant("obs_mean", policy.weights["obs_mean"], np.float64)], "centred")
        x = node("Mul", [x, constant("obs_scale", scale, np.float64)], "scaled")
        x = node("Max", [x, constant("obs_low", -card.clip, np.float64)], "bounded_below")
        x = node("Min", [x, constant("obs_high", card.clip, np.float64)], "bounded")
        x = node("Cast", [x], "normalised", to=onnx.TensorProto.FLOAT)
    layers = [*(f"pi.{i}" for i in range(len(card.hidden_sizes))), "action"]
    for name in layers:
        weight = constant(f"{name}.weight", policy.weights[f"{name}.weight"], np.float32)
        bias = constant(f"{name}.bias", policy.weights[f"{name}.bias"], np.float32)
        x = node("Gemm", [x, weight, bias], f"{name}.out", transB=1)
        if name != "action":
            x = node("Tanh" if card.activation == "tanh" else "Relu", [x], f"{name}.active")
    discrete = card.action_kind == "discrete"
    kind = onnx.TensorProto.INT64 if discrete else onnx.TensorProto.FLOAT
    shape = ["N"] if discrete else ["N", card.action_size]
    if discrete:
        node("ArgMax", [x], "action", axis=1, keepdims=0)
    else:
        low, high = np.asarray(card.action_low, np.float32), np.asarray(card.action_high, np.float32)
        if card.squash:
            x = node("Tanh", [x], "squashed")
            x = node("Mul", [x, constant("half_range", (high - low) / 2, np.float32)], "scaled_action")
            x = node("Add", [x, constant("middle", (high + low) / 2, np.float32)], "shifted_action")
        x = node("Max", [x, constant("action_low", low, np.float32)], "action_bounded_below")
        node("Min", [x, constant("action_high", high, np.float32)], "action")
    graph = make.make_graph(
        nodes,
        "policy",
        [make.make_tensor_value_info("observation", onnx.TensorProto.FLOAT, ["N", card.observation_size])],
        [make.make_tensor_value_info("action", kind, shape)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", _OPSET)], producer_name="dressage")
    # An older reader than the newest onnx package's must be able to load it.
    model.ir_version = _IR_VERSION
    make.set_model_props(model, {"environment": card.environment})
    return model
