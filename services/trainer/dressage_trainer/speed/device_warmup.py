"""Compiles MuJoCo Warp's kernels of one environment into a folder: a sandboxed process that never sees generated code."""

from __future__ import annotations

from pathlib import Path

from dressage.envs import EnvOptions
from dressage.errors import DressageError
from dressage.sandbox.pipe import Channel

FOLDER = "warp"
"""Warp's cache, relative to the working directory of a learner and of this process."""
_TIMEOUT = 60.0


def warm(channel: Channel) -> None:
    """Sandbox target: receive ``environment`` and ``options``, compile, and reply "warmed" or "failed"."""
    message = channel.recv(timeout=_TIMEOUT)
    Path(FOLDER).mkdir(exist_ok=True)
    try:
        compile_kernels(message["environment"], EnvOptions.from_dict(message["options"]))
        channel.send({"type": "warmed"})
    except (DressageError, OSError) as error:
        channel.send({"type": "failed", "message": str(error)})


def compile_kernels(environment: str, options: EnvOptions) -> None:
    """Start and step the environment once: what that launches is compiled, and stays in Warp's cache."""
    import jax
    import jax.numpy as jnp
    from dressage.envs.on_device import make_device_env

    env = make_device_env(environment, 1, options=options)
    carry = jax.jit(env.init)(jax.random.key(0))
    _, step = jax.jit(env.step)(carry, jnp.zeros((1, env.action_size)))
    step.observation.block_until_ready()
