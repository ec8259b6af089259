"""Saving, loading and acting with numpy and safetensors alone.

A bundle is a folder with ``policy.safetensors`` and ``card.json``. Tensors are named as their place in the network:
``pi.0.weight`` (out, in), ``pi.0.bias``, ..., ``action.weight``, ``action.bias``, the same for ``vf`` and ``value``,
``log_std``, ``obs_mean``, ``obs_var``. Numbered actions have no ``log_std``; a squashed policy (SAC's actor) has
``log_std.weight`` and ``log_std.bias`` instead, and no ``vf`` and ``value``. Weights are float32, statistics float64.
Nothing in it can execute.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as decode_tensors
from safetensors.numpy import save as encode_tensors

from dressage.errors import InvalidArgument, NotFound
from dressage.policies.card import PolicyCard

WEIGHTS_FILE = "policy.safetensors"
CARD_FILE = "card.json"

Array = NDArray[Any]


class Policy:
    """A trained policy: deterministic actions from raw observations.

    :param weights: tensors of the bundle, by name.
    :raises InvalidArgument: where a tensor is missing, has another shape than the card says, or is not finite.
    """

    def __init__(self, *, weights: Mapping[str, Array], card: PolicyCard) -> None:
        _check_tensors(weights, card)
        self.description = card
        self.weights = as_stored(weights, card)
        names = [*(f"pi.{i}" for i in range(len(card.hidden_sizes))), "action"]
        self._layers = [(self.weights[f"{n}.weight"].T, self.weights[f"{n}.bias"]) for n in names]
        self._mean = self.weights["obs_mean"]
        self._scale = 1.0 / np.sqrt(self.weights["obs_var"] + card.epsilon)
        self._low = np.asarray(card.action_low, np.float32)
        self._high = np.asarray(card.action_high, np.float32)

    @property
    def card(self) -> dict[str, Any]:
        """The contents of ``card.json``."""
        return self.description.to_dict()

    def act(self, observation: ArrayLike) -> Array:
        """The deterministic action: the mean, brought into the action bounds, or the number of the most likely action.

        :param observation: (D,) or (N, D), in the environment's own units.
        :returns: (A,) or (N, A) float32; numbered actions: () or (N,) int64.
        :raises InvalidArgument: for another shape.
        """
        x = np.asarray(observation, np.float64)
        size = self.description.observation_size
        if x.ndim not in (1, 2) or x.shape[-1] != size:
            raise InvalidArgument(field="observation", value=x.shape, expected=f"shape ({size},) or (N, {size})")
        single = x.ndim == 1
        x = np.atleast_2d(x)
        if self.description.normalize_observation:
            x = np.clip((x - self._mean) * self._scale, -self.description.clip, self.description.clip)
        x = x.astype(np.float32)
        for weight, bias in self._layers[:-1]:
            x = x @ weight + bias
            x = np.tanh(x) if self.description.activation == "tanh" else np.maximum(x, np.float32(0))
        weight, bias = self._layers[-1]
        action = self._decide(x @ weight + bias)
        return np.asarray(action[0]) if single else action

    def _decide(self, output: Array) -> Array:
        """(N, A) actions, or (N,) numbers, from the network's (N, outputs)."""
        if self.description.action_kind == "discrete":
            chosen: Array = output.argmax(axis=1)
            return chosen
        if self.description.squash:
            # As SB3 unscales it. Rounding may pass a bound by one digit, hence the clip.
            output = self._low + np.float32(0.5) * (np.tanh(output) + np.float32(1)) * (self._high - self._low)
        action: Array = np.clip(output, self._low, self._high)
        return action


def tensor_shapes(card: PolicyCard) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a bundle."""
    shapes: dict[str, tuple[int, ...]] = {"obs_mean": (card.observation_size,), "obs_var": (card.observation_size,)}
    towers = [("pi", "action", card.outputs)]
    if card.squash:
        shapes |= {"log_std.weight": (card.outputs, card.hidden_sizes[-1]), "log_std.bias": (card.outputs,)}
    else:
        towers.append(("vf", "value", 1))
        if card.action_kind == "box":
            shapes["log_std"] = (card.outputs,)
    for tower, head, size_out in towers:
        sizes = [card.observation_size, *card.hidden_sizes, size_out]
        names = [*(f"{tower}.{i}" for i in range(len(card.hidden_sizes))), head]
        for name, fan_in, fan_out in zip(names, sizes[:-1], sizes[1:], strict=True):
            shapes[f"{name}.weight"] = (fan_out, fan_in)
            shapes[f"{name}.bias"] = (fan_out,)
    return shapes


def as_stored(weights: Mapping[str, Array], card: PolicyCard) -> dict[str, Array]:
    """The bundle's tensors in the types they are stored in: statistics in double, weights in single precision."""
    return {
        name: np.array(weights[name], np.float64 if name.startswith("obs_") else np.float32, order="C")
        for name in tensor_shapes(card)
    }


def _check_tensors(weights: Mapping[str, Array], card: PolicyCard) -> None:
    for name, shape in tensor_shapes(card).items():
        if name not in weights:
            raise InvalidArgument(field=f"tensor {name}", value=None, expected=f"an array of shape {shape}")
        array = np.asarray(weights[name])
        if array.shape != shape:
            raise InvalidArgument(field=f"tensor {name}", value=array.shape, expected=f"shape {shape}")
        if not np.isfinite(array).all():
            raise InvalidArgument(field=f"tensor {name}", value="NaN or infinity", expected="finite values")


def save_bundle(path: str | os.PathLike[str], *, weights: Mapping[str, Array], card: PolicyCard) -> Path:
    """Write the bundle into the folder ``path`` (made if absent), each file at once or not at all.

    :returns: the folder.
    :raises InvalidArgument: where weights and card do not fit each other.
    """
    _check_tensors(weights, card)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / WEIGHTS_FILE, encode_tensors(as_stored(weights, card)))
    write_file(folder / CARD_FILE, (json.dumps(card.to_dict(), indent=2, sort_keys=True) + "\n").encode())
    return folder


def load(path: str | os.PathLike[str]) -> Policy:
    """Load a bundle.

    :param path: its folder, or its ``policy.safetensors``.
    :raises NotFound: where a file of the bundle is missing.
    :raises InvalidArgument: where a file is damaged or cannot be read, or the files do not fit each other.
    """
    folder = Path(path)
    if folder.name == WEIGHTS_FILE:
        folder = folder.parent
    try:
        raw_card = (folder / CARD_FILE).read_bytes()
        raw_weights = (folder / WEIGHTS_FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"no policy bundle in {folder}: {Path(error.filename).name} is missing") from error
    except OSError as error:
        raise InvalidArgument(
            f"{error.filename}: cannot be read ({error.strerror})", field=Path(error.filename).name
        ) from error
    try:
        card = PolicyCard.from_dict(json.loads(raw_card))
    except ValueError as error:
        raise InvalidArgument(f"{folder / CARD_FILE}: not JSON ({error})", field=CARD_FILE) from error
    except RecursionError as error:  # of the parser, or of what shows a deep value in an error
        raise InvalidArgument(f"{folder / CARD_FILE}: nested too deep", field=CARD_FILE) from error
    try:
        weights = decode_tensors(raw_weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InvalidArgument(f"{folder / WEIGHTS_FILE}: damaged ({error})", field=WEIGHTS_FILE) from error
    return Policy(weights=weights, card=card)


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` under another name in the same folder, make it durable, then rename it to ``path``."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
