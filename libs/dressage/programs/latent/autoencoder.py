"""A variational autoencoder of programs: recurrent networks over the nodes of a tree in preorder.

The encoder reads nodes and their places, and gives the mean of a normal distribution in the latent space. The decoder
scores the next node from the latent vector, the node before and the place to fill; `Choices` keeps programs valid. Both are
gated recurrent units (Cho et al. 2014). ``research/train_program_vae.py`` trains the weights. They are neither those of LEAPS
(Trivedi et al. 2021) nor trained as those are: the loss is reconstruction and divergence, without executing programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from dressage.errors import InvalidArgument
from dressage.programs.engine.grammar import KAREL_GRAMMAR, Grammar
from dressage.programs.engine.trees import Nodes
from dressage.programs.latent.decoding import MAX_NODES, Choices, places_of, vocabulary

Floats = NDArray[np.float32]
Weights = dict[str, Floats]
_WEIGHTS = {"karel": "karel.safetensors"}


class Autoencoder:
    """Encodes and decodes programs with given weights; see ``research/train_program_vae.py`` for their names and shapes.

    Programs are decoded in batches; a program's result does not depend on others of its batch as long as the batches have
    the same size.
    """

    def __init__(self, weights: Weights, grammar: Grammar) -> None:
        self.grammar = grammar
        self.size = weights["decoder.latent"].shape[0]
        """Numbers of a latent vector."""
        self._w = weights
        self._vocabulary = vocabulary(grammar)

    def encode(self, programs: Sequence[Nodes]) -> Floats:
        """Return the latent vectors of programs: float32[P, Z], the means of their distributions.

        :raises InvalidArgument: for a program that is too long, or has nodes that no drawn program has.
        """
        nodes, sizes = pad(programs)
        numbers, places = node_numbers(nodes, sizes, self.grammar), places_of(nodes, sizes, self.grammar)
        hidden: Floats = np.zeros((len(programs), self._w["encoder.hidden"].shape[0]), np.float32)
        inputs = self._w["encoder.nodes"][numbers] + self._w["encoder.places"][places]
        for i in range(int(sizes.max(initial=0))):
            gates: Floats = np.asarray(inputs[:, i] @ self._w["encoder.input"] + self._w["encoder.bias"], np.float32)
            new = _gated_unit(gates, hidden, self._w["encoder.hidden"], self._w["encoder.hidden_bias"])
            hidden = np.where((i < sizes)[:, None], new, hidden).astype(np.float32)
        return np.asarray(hidden @ self._w["mean"] + self._w["mean_bias"], np.float32)

    def decode(self, latent: Floats) -> list[Nodes]:
        """Return the programs of latent vectors float32[P, Z], each within the limits of the grammar."""
        choices = Choices(self.grammar, len(latent))
        w = self._w
        hidden = np.tanh(latent @ w["decoder.start"] + w["decoder.start_bias"]).astype(np.float32)
        constant = latent @ w["decoder.latent"] + w["decoder.bias"]
        previous = np.full(len(latent), len(self._vocabulary), np.int64)
        while choices.open:
            inputs = w["decoder.nodes"][previous] + w["decoder.places"][np.maximum(choices.places, 0)]
            gates = inputs @ w["decoder.input"] + constant
            hidden = _gated_unit(gates, hidden, w["decoder.hidden"], w["decoder.hidden_bias"])
            choices.take(np.asarray(hidden @ w["output"] + w["output_bias"], np.float32))
            previous = choices.chosen.copy()
        return choices.programs()


def _gated_unit(gates: Floats, hidden: Floats, weights: Floats, bias: Floats) -> Floats:
    """Return the next state of a gated recurrent unit: float32[B, H].

    :param gates: what the input adds to the reset gate, the update gate and the candidate, float32[B, 3H].
    """
    size = hidden.shape[1]
    own = hidden @ weights + bias
    both = 1 / (1 + np.exp(-(gates[:, : 2 * size] + own[:, : 2 * size])))
    candidate = np.tanh(gates[:, 2 * size :] + both[:, :size] * own[:, 2 * size :])
    update = both[:, size:]
    return np.asarray(update * hidden + (1 - update) * candidate, np.float32)


def pad(programs: Sequence[Nodes]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return nodes int32[P, MAX_NODES] and sizes int64[P] of programs.

    :raises InvalidArgument: for a program that is too long.
    """
    nodes = np.zeros((len(programs), MAX_NODES), np.int32)
    for row, program in zip(nodes, programs, strict=True):
        if len(program) > MAX_NODES:
            raise InvalidArgument(
                field="program", problem="too long", value=len(program), expected=f"at most {MAX_NODES} nodes"
            )
        row[: len(program)] = program
    return nodes, np.array([len(program) for program in programs], np.int64)


def node_numbers(nodes: NDArray[np.int32], sizes: NDArray[np.int64], grammar: Grammar) -> NDArray[np.int64]:
    """Return the numbers of nodes in the vocabulary: int64[P, N].

    :raises InvalidArgument: for a node that is not in it, such as ``and``.
    """
    nodes_by_number = vocabulary(grammar)
    numbers = np.minimum(np.searchsorted(nodes_by_number, nodes), len(nodes_by_number) - 1)
    within = np.arange(nodes.shape[1]) < sizes[:, None]
    if (nodes_by_number[numbers] != nodes)[within].any():
        raise InvalidArgument(
            field="program",
            problem="has a condition that the latent space lacks",
            expected="tests and `not`, without and, or, True, False",
        )
    return numbers


@cache
def load_autoencoder(language: str = "karel") -> Autoencoder:
    """Return the autoencoder of the package for a language.

    :raises InvalidArgument: for a language that has none.
    """
    if language not in _WEIGHTS:
        raise InvalidArgument(
            field="language", problem="has no latent space", value=language, expected=", ".join(_WEIGHTS)
        )
    data = resources.files(__package__).joinpath(_WEIGHTS[language]).read_bytes()
    return Autoencoder({name: value.astype(np.float32) for name, value in load(data).items()}, KAREL_GRAMMAR)
