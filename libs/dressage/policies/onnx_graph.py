"""A small builder of ONNX graphs, to which each kind of policy adds its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

_OPSET = 17
_IR_VERSION = 9


class Graph:
    """Collects the nodes of one graph.

    :param onnx: the module ``onnx``, imported by the caller, because acting with a policy must not require it.
    """

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.types = onnx.TensorProto
        """Element types, such as ``types.FLOAT``."""
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray[Any, Any]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: Any, dtype: Any) -> str:
        """Add a constant; returns its name."""
        self._constants[name] = np.asarray(value, dtype)
        return name

    def input(self, name: str, element_type: int, shape: list[str | int]) -> str:
        """Declare an input; returns its name."""
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, element_type, shape))
        return name

    def output(self, name: str, element_type: int, shape: list[str | int]) -> str:
        """Declare that the tensor ``name`` is an output; returns its name."""
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, element_type, shape))
        return name

    def model(self, properties: dict[str, str]) -> Any:
        """Return the finished model.

        :param properties: metadata of the model.
        """
        make = self._onnx.helper
        constants = [self._onnx.numpy_helper.from_array(value, name) for name, value in self._constants.items()]
        graph = make.make_graph(self._nodes, "policy", self._inputs, self._outputs, constants)
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", _OPSET)], producer_name="dressage")
        # Older runtimes than the newest onnx package must be able to load it.
        model.ir_version = _IR_VERSION
        make.set_model_props(model, properties)
        return model
