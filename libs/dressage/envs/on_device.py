"""Which simulator runs environments on a device; it is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Collection

from dressage.envs.device import DeviceEnv
from dressage.envs.options import EnvOptions
from dressage.errors import Unavailable
from dressage.installation import install_command


def make_device_env(
    env_id: str, num_envs: int, *, options: EnvOptions | None = None, fields: Collection[str] | None = None
) -> DeviceEnv:
    """Return environments of MuJoCo on a device, by MuJoCo Warp.

    :param env_id: an environment of MuJoCo, such as ``HalfCheetah-v5``, or a model of the user's, ``mjcf:NAME``.
    :param num_envs: 1 to 65,536.
    :param fields: names of the state's fields that will be read; None for all.
    :raises NotFound: for an unknown environment or field.
    :raises InvalidArgument: for a bad number or option, or an environment that is not simulated by MuJoCo.
    :raises FailedPrecondition: when MuJoCo Warp does not support the model.
    :raises Unavailable: when MuJoCo Warp is not installed.
    """
    try:
        from dressage.envs.warp_env import WarpEnv
    except ModuleNotFoundError as error:
        message = (
            f"environments on a device need MuJoCo Warp ({error.name} is not installed): {install_command('warp')}"
        )
        raise Unavailable(message, reason="WARP_NOT_INSTALLED") from error
    return WarpEnv(env_id, num_envs, options=options or EnvOptions(), fields=fields)
