"""Train the autoencoder of programs and write its weights into the package.

    python research/train_program_vae.py --programs 100000 --epochs 10

Programs are drawn from the grammar, without repetition; 2,000 others measure the reconstruction: the share of programs that
decode to themselves from the mean of their encoding, and the share of nodes that do before the first difference. The last
line is one JSON object with both, which the weights' file holds as metadata too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dressage.programs.engine.grammar import KAREL_GRAMMAR, Grammar
from dressage.programs.engine.trees import Nodes, flatten
from dressage.programs.latent.autoencoder import Autoencoder, node_numbers, pad
from dressage.programs.latent.decoding import PLACES, places_of, vocabulary
from dressage.programs.search.draws import random_programs
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parent.parent / "libs/dressage/programs/latent/karel.safetensors"
HELD_OUT = 2_000
BLOCK = 50_000
Weights = dict[str, Any]


def drawn(grammar: Grammar, count: int, seed: int) -> list[Nodes]:
    """Return ``count`` distinct random programs, in the order of their numbers."""
    seen: dict[bytes, Nodes] = {}
    first = 0
    while len(seen) < count:
        for program in random_programs(grammar, seed, BLOCK, first):
            nodes = flatten(program, grammar.language)
            seen.setdefault(nodes.tobytes(), nodes)
        first += BLOCK
    return list(seen.values())[:count]


def initial(rng: np.random.Generator, *, nodes: int, hidden: int, embedding: int, latent: int) -> Weights:
    """Return random weights: normal with the deviation of Glorot, biases zero."""

    def matrix(rows: int, columns: int) -> Any:
        return jnp.asarray(rng.normal(size=(rows, columns)) * (2 / (rows + columns)) ** 0.5, jnp.float32)

    weights: Weights = {}
    for part in ("encoder", "decoder"):
        weights |= {
            f"{part}.nodes": matrix(nodes + 1, embedding),
            f"{part}.places": matrix(PLACES, embedding),
            f"{part}.input": matrix(embedding, 3 * hidden),
            f"{part}.hidden": matrix(hidden, 3 * hidden),
            f"{part}.hidden_bias": jnp.zeros(3 * hidden),
            f"{part}.bias": jnp.zeros(3 * hidden),
        }
    return weights | {
        "mean": matrix(hidden, latent),
        "mean_bias": jnp.zeros(latent),
        "deviation": matrix(hidden, latent) * 0.1,
        "deviation_bias": jnp.full(latent, -2.0),
        "decoder.latent": matrix(latent, 3 * hidden),
        "decoder.start": matrix(latent, hidden),
        "decoder.start_bias": jnp.zeros(hidden),
        "output": matrix(hidden, nodes),
        "output_bias": jnp.zeros(nodes),
    }


def gated(gates: Any, hidden: Any, weights: Any, bias: Any) -> Any:
    """Return the next state of a gated recurrent unit; see `dressage.programs.latent.autoencoder`."""
    size = hidden.shape[1]
    own = hidden @ weights + bias
    both = jax.nn.sigmoid(gates[:, : 2 * size] + own[:, : 2 * size])
    candidate = jnp.tanh(gates[:, 2 * size :] + both[:, :size] * own[:, 2 * size :])
    update = both[:, size:]
    return update * hidden + (1 - update) * candidate


def loss_of(w: Weights, numbers: Any, places: Any, key: Any, divergence: Any) -> Any:
    """Return the mean of reconstruction and weighted divergence of a batch.

    :param numbers: nodes int32[B, N]; ``places`` the same, -1 behind the end.
    """
    within = places >= 0
    places = jnp.maximum(places, 0)
    batch, hidden = len(numbers), w["encoder.hidden"].shape[0]
    read = (w["encoder.nodes"][numbers] + w["encoder.places"][places]) @ w["encoder.input"] + w["encoder.bias"]

    def encode(state: Any, step: Any) -> Any:
        gates, here = step
        new = gated(gates, state, w["encoder.hidden"], w["encoder.hidden_bias"])
        return jnp.where(here[:, None], new, state), None

    state, _ = jax.lax.scan(encode, jnp.zeros((batch, hidden)), (read.swapaxes(0, 1), within.T))
    mean, log_deviation = state @ w["mean"] + w["mean_bias"], state @ w["deviation"] + w["deviation_bias"]
    z = mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape)
    start = jnp.full((batch, 1), w["decoder.nodes"].shape[0] - 1)
    previous = jnp.concatenate([start, numbers[:, :-1]], axis=1)
    constant = z @ w["decoder.latent"] + w["decoder.bias"]
    gates = (w["decoder.nodes"][previous] + w["decoder.places"][places]) @ w["decoder.input"] + constant[:, None]

    def decode(state: Any, step: Any) -> Any:
        new = gated(step, state, w["decoder.hidden"], w["decoder.hidden_bias"])
        return new, new

    first = jnp.tanh(z @ w["decoder.start"] + w["decoder.start_bias"])
    _, states = jax.lax.scan(decode, first, gates.swapaxes(0, 1))
    logits = states.swapaxes(0, 1) @ w["output"] + w["output_bias"]
    likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), numbers[..., None], axis=2)[..., 0]
    reconstruction = -(likelihood * within).sum(axis=1).mean()
    kl = (0.5 * (mean**2 + jnp.exp(2 * log_deviation) - 1) - log_deviation).sum(axis=1).mean()
    return reconstruction + divergence * kl, (reconstruction, kl)


@jax.jit
def step(w: Weights, first: Weights, second: Weights, count: Any, batch: Any, key: Any, rate: Any, weight: Any) -> Any:
    """Take one step of Adam (Kingma and Ba 2015) with the gradient's norm clipped to 1."""
    (_, parts), gradient = jax.value_and_grad(loss_of, has_aux=True)(w, *batch, key, weight)
    norm = jnp.sqrt(sum((g**2).sum() for g in gradient.values()))
    gradient = {name: g * jnp.minimum(1, 1 / (norm + 1e-6)) for name, g in gradient.items()}
    first = {name: 0.9 * first[name] + 0.1 * g for name, g in gradient.items()}
    second = {name: 0.999 * second[name] + 0.001 * g**2 for name, g in gradient.items()}
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    w = {name: value - scale * first[name] / (jnp.sqrt(second[name]) + 1e-8) for name, value in w.items()}
    return w, first, second, parts


def reconstruction(weights: Weights, programs: list[Nodes], grammar: Grammar) -> dict[str, float]:
    """Return the share of programs that decode to themselves, and of nodes before the first difference."""
    model = Autoencoder({name: np.asarray(value, np.float32) for name, value in weights.items()}, grammar)
    equal, same, total = 0, 0, 0
    for at in range(0, len(programs), 256):
        part = programs[at : at + 256]
        for nodes, other in zip(part, model.decode(model.encode(part)), strict=True):
            shared = min(len(nodes), len(other))
            differs = np.flatnonzero(nodes[:shared] != other[:shared])
            same += int(differs[0]) if len(differs) else shared
            total += len(nodes)
            equal += len(nodes) == len(other) and not len(differs)
    return {"programs": round(equal / len(programs), 4), "nodes": round(same / total, 4)}


def main() -> int:
    """Draw, train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--embedding", type=int, default=32)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--divergence", type=float, default=0.02, help="weight of the divergence at the end")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    grammar = KAREL_GRAMMAR
    programs = drawn(grammar, given.programs + HELD_OUT, seed=1)
    held_out, programs = programs[-HELD_OUT:], sorted(programs[:-HELD_OUT], key=len)
    nodes, sizes = pad(programs)
    numbers, places = node_numbers(nodes, sizes, grammar), places_of(nodes, sizes, grammar)
    rng = np.random.default_rng(0)
    shape = {"hidden": given.hidden, "embedding": given.embedding, "latent": given.latent}
    w = initial(rng, nodes=len(vocabulary(grammar)), **shape)
    first = {name: jnp.zeros_like(value) for name, value in w.items()}
    second = dict(first)
    batches, began, key = len(programs) // given.batch, time.monotonic(), jax.random.key(0)
    total = int(given.epochs * batches)
    order: list[int] = []
    sums = np.zeros(2)
    for count in range(1, total + 1):
        if not order:
            order = list(rng.permutation(batches))
        rows = slice(at := order.pop() * given.batch, at + given.batch)
        # Programs of a batch have similar lengths; multiples of 8 keep the number of compiled shapes small.
        longest = -(-int(sizes[rows].max()) // 8) * 8
        rate = given.rate * min(1.0, count / 200) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * count / total)))
        weight = given.divergence * min(1.0, 2 * count / total)
        key, own = jax.random.split(key)
        batch = (numbers[rows, :longest], places[rows, :longest])
        w, first, second, parts = step(w, first, second, count, batch, own, rate, weight)
        sums += [float(parts[0]), float(parts[1])]
        if count % 200 == 0 or count == total:
            measured = reconstruction(w, held_out[:500], grammar) if count % 1000 == 0 else ""
            seconds = time.monotonic() - began
            print(
                f"{count}/{total} {seconds:.0f} s, loss {sums[0] / 200:.3f}, kl {sums[1] / 200:.2f} {measured}",
                file=sys.stderr,
                flush=True,
            )
            sums[:] = 0
    result = {**vars(given), "out": given.out.name, "reconstruction": reconstruction(w, held_out, grammar)}
    # Half precision halves the file; what is measured is what is stored.
    stored = {name: np.asarray(value, np.float16) for name, value in w.items() if not name.startswith("deviation")}
    result["stored"] = reconstruction(stored, held_out, grammar)
    save_file(stored, given.out, metadata={"training": json.dumps(result)})
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
