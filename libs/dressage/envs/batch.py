"""`make_batch`, which makes the batch of an environment id: MuJoCo's, its own, a pack's, or any registered one's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection

from dressage.envs import custom
from dressage.envs.catalogue import catalogue
from dressage.envs.options import EnvOptions
from dressage.envs.packs.registry import PACKS
from dressage.envs.plain import is_plain
from dressage.envs.protocol import BatchEnv
from dressage.envs.tasks import is_simulated
from dressage.errors import InvalidArgument

_MAX_ENVS = 65_536
_MAX_THREADS = 1_024


def make_batch(
    env_id: str,
    num_envs: int,
    *,
    num_threads: int,
    options: EnvOptions | None = None,
    fields: Collection[str] | None = None,
) -> BatchEnv:
    """Return a batch of environments: MuJoCo's on native threads, others in the caller's.

    :param env_id: an id that has a card, such as ``HalfCheetah-v5``, ``mjcf:dog`` or ``gymnasium:Pendulum-v1``.
    :param num_envs: 1 to 65,536.
    :param num_threads: threads that step the simulations, the caller's included.
    :param options: deviations from the stock environment.
    :param fields: names of the state's fields that will be read; None for all. Fewer fields mean fewer copies.
    :raises NotFound: for an unknown environment or field.
    :raises InvalidArgument: for a bad number or option, or an environment that does not support the method ``reward``.
    :raises FailedPrecondition: for an environment of a pack, in a process that was not started with a simulator.
    """
    options = options or EnvOptions()
    card = options.check(env_id)
    if is_plain(env_id) or (card.pack and not PACKS[card.pack].batched):
        expected = "an environment whose card lists the method 'reward'"
        raise InvalidArgument(field="environment", problem="it has no batch", value=env_id, expected=expected)
    check_count("num_envs", num_envs)
    check_count("num_threads", num_threads, _MAX_THREADS)
    for name in fields or ():
        card.field(name)
    if env_id.startswith(custom.GYMNASIUM):
        from dressage.envs.vector import VectorBatch

        return VectorBatch(card, num_envs, options=options, fields=fields)
    if card.pack:
        from dressage.envs.packs.batched import link
        from dressage.envs.packs.batched.client import PackBatch

        return PackBatch(card, num_envs, options=options, fields=fields, channel=link.current())
    if not is_simulated(env_id):
        own: Callable[..., BatchEnv] = importlib.import_module(catalogue()[env_id].module).BATCH
        return own(card, num_envs, options=options, fields=fields)
    from dressage.envs.mujoco_batch import MujocoBatch

    return MujocoBatch(card, num_envs, num_threads=num_threads, options=options, fields=fields)


def check_count(name: str, value: int, limit: int = _MAX_ENVS) -> None:
    """Refuse a number that is no integer from 1 to ``limit``.

    :raises InvalidArgument: naming it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InvalidArgument(field=name, value=value, expected=f"an integer from 1 to {limit}")
