"""What the tests of compiled kernels run in sandboxed processes."""

from __future__ import annotations

import time


def play(channel):
    """Answer one request of the player, with the processor time that loading or compiling its kernel took."""
    import dressage.episodes.ahead  # noqa: F401  (a spare process has imported it)
    from dressage_trainer.evaluation.player import Environments, answer

    request = channel.recv(timeout=60)
    environments, began = Environments(), time.process_time()
    reply = answer(request, environments)
    channel.send({**reply, "seconds": time.process_time() - began})


def import_all(channel):
    """Use numba, JAX and torch in one process."""
    import jax.numpy as jnp
    import torch
    from numba import njit

    doubled = njit(lambda x: 2.0 * x)(1.5)
    channel.send({"numba": doubled, "jax": float(jnp.sin(0.5)), "torch": float(torch.ones(3).sum())})
