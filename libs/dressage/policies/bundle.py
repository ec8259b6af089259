"""Saves, loads and runs policies with numpy and safetensors only.

A bundle is a folder with ``policy.safetensors`` and ``card.json``. The card names the kind of policy; its module in
`dressage.policies.kinds` documents the tensors. Weights are float32, statistics of observations float64 (``obs_mean``,
``obs_var``). A bundle contains no code.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as decode_tensors
from safetensors.numpy import save as encode_tensors

from dressage.errors import InvalidArgument, NotFound
from dressage.policies.card import PolicyCard
from dressage.policies.kinds import kind

WEIGHTS_FILE = "policy.safetensors"
CARD_FILE = "card.json"
_MAX_ARCHIVE_BYTES = 256 << 20

Array = NDArray[Any]


class Policy:
    """A trained policy: deterministic actions from raw observations.

    :param weights: tensors of the bundle, by name.
    :raises InvalidArgument: if a tensor is missing, has another shape than the card requires, or is not finite.
    """

    def __init__(self, *, weights: Mapping[str, Array], card: PolicyCard) -> None:
        policy_kind = kind(card.kind)
        policy_kind.validate(weights, card)
        self.description = card
        self.weights = policy_kind.to_store(weights, card)
        self._act = policy_kind.actor(self.weights, card)

    def __repr__(self) -> str:
        return f"Policy({self.description.environment}, {self.description.kind})"

    @property
    def card(self) -> dict[str, Any]:
        """The contents of ``card.json``."""
        return self.description.to_dict()

    def act(self, observation: ArrayLike) -> Array:
        """Return the deterministic action: the mean within the action bounds, or the index of the most likely action.

        :param observation: (D,) or (N, D), not normalised. A table takes an integer or (N,) integers, or their one-hot
            form, (D,) or (N, D) floating.
        :returns: (A,) or (N, A) float32; discrete actions: () or (N,) int64.
        :raises InvalidArgument: for another shape, or an observation that is not in the table.
        """
        return self._act(observation)

    def predict(
        self,
        observation: ArrayLike,
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = True,
    ) -> tuple[Array, tuple[Array, ...] | None]:
        """Return the action as ``predict`` of Stable-Baselines3 does.

        :param observation: as for `act`.
        :param state: returned unchanged, because no policy is recurrent.
        :param episode_start: not used.
        :param deterministic: must be True, because a bundle has no distribution to sample from.
        :returns: the action as `act` returns it, and ``state``.
        :raises InvalidArgument: for another shape, or ``deterministic=False``.
        """
        if not deterministic:
            raise InvalidArgument(field="deterministic", value=deterministic, expected="True")
        return self._act(observation), state

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the policy as a folder, or as one file if the name ends in ``.zip``. `load` reads both.

        :returns: the folder or the file.
        """
        target = Path(path)
        if target.suffix != ".zip":
            return save_bundle(target, weights=self.weights, card=self.description)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, self.to_bytes())
        return target

    def to_bytes(self) -> bytes:
        """Return the policy as the contents of a ``.zip`` file; `from_bytes` reads them."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(WEIGHTS_FILE, encode_tensors(self.weights))
            archive.writestr(CARD_FILE, json.dumps(self.card, indent=2, sort_keys=True) + "\n")
        return buffer.getvalue()


def tensor_shapes(card: PolicyCard) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor of a bundle."""
    return kind(card.kind).tensors(card)


def save_bundle(path: str | os.PathLike[str], *, weights: Mapping[str, Array], card: PolicyCard) -> Path:
    """Write the bundle into the folder ``path`` (created if absent), each file atomically.

    :returns: the folder.
    :raises InvalidArgument: if weights and card do not match.
    """
    policy_kind = kind(card.kind)
    policy_kind.validate(weights, card)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / WEIGHTS_FILE, encode_tensors(policy_kind.to_store(weights, card)))
    write_file(folder / CARD_FILE, (json.dumps(card.to_dict(), indent=2, sort_keys=True) + "\n").encode())
    return folder


def load(path: str | os.PathLike[str]) -> Policy:
    """Load a bundle.

    :param path: its folder, its ``policy.safetensors``, or a ``.zip`` file.
    :raises NotFound: if a file of the bundle is missing.
    :raises InvalidArgument: if a file is damaged or cannot be read, or the files do not match.
    """
    folder = Path(path)
    if folder.suffix == ".zip" and folder.is_file():
        return from_bytes(folder.read_bytes(), name=str(folder))
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
    return _decode(raw_card, raw_weights, folder)


def from_bytes(data: bytes, *, name: str = "policy.zip") -> Policy:
    """Load what `Policy.to_bytes` returned.

    :param name: how errors name it.
    :raises InvalidArgument: where it is no such file, is damaged, or holds more than 256 MiB.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(archive.getinfo(member).file_size for member in (CARD_FILE, WEIGHTS_FILE))
            if size > _MAX_ARCHIVE_BYTES:
                raise InvalidArgument(field=name, value=f"{size} bytes", expected=f"at most {_MAX_ARCHIVE_BYTES}")
            raw_card, raw_weights = archive.read(CARD_FILE), archive.read(WEIGHTS_FILE)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, zlib.error) as error:
        message = f"{name}: not a policy of Dressage ({error}); expected a .zip file that `Policy.save` wrote"
        raise InvalidArgument(message, field=name) from error
    return _decode(raw_card, raw_weights, Path(name))


def _decode(raw_card: bytes, raw_weights: bytes, place: Path) -> Policy:
    """The policy of the contents of its two files; errors name ``place``."""
    try:
        card = PolicyCard.from_dict(json.loads(raw_card))
    except ValueError as error:
        raise InvalidArgument(f"{place / CARD_FILE}: not JSON ({error})", field=CARD_FILE) from error
    except RecursionError as error:  # of the parser, or of the representation of a deep value
        raise InvalidArgument(f"{place / CARD_FILE}: nested too deep", field=CARD_FILE) from error
    try:
        weights = decode_tensors(raw_weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InvalidArgument(f"{place / WEIGHTS_FILE}: damaged ({error})", field=WEIGHTS_FILE) from error
    return Policy(weights=weights, card=card)


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` to a temporary file in the same folder, sync it, then rename it to ``path``."""
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
