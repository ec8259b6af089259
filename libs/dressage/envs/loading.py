"""Loading models without MuJoCo's chatter: a user can do nothing about its warnings on Gymnasium's model files.

By default MuJoCo prints them and writes MUJOCO_LOG.TXT into the current folder, once for each model loaded. Warnings of
a running simulation are unchanged: the handler is in place during the loading only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dressage.errors import InvalidArgument, Unavailable

# The handler is one for the whole process.
_LOCK = threading.RLock()


@contextmanager
def quiet_loading() -> Iterator[list[str]]:
    """Collect MuJoCo's warnings instead of printing them; yield their list."""
    import mujoco

    warnings: list[str] = []
    with _LOCK:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(warnings.append)
        try:
            yield warnings
        finally:
            mujoco.set_mju_user_warning(before)


def load_compiled(path: Path) -> Any:
    """Read a compiled model, meshes and all. Only the MuJoCo that wrote it can read it.

    :raises Unavailable: when it is not there.
    :raises InvalidArgument: when it cannot be read.
    """
    import mujoco

    if not path.is_file():
        raise Unavailable(f"the model {path.parent.name!r} is not there: {path.name} is missing")
    try:
        with quiet_loading():
            return mujoco.MjModel.from_binary_path(str(path))
    except (ValueError, mujoco.FatalError) as error:
        message = (
            f"the model of {path.parent.name!r} cannot be read, perhaps because another version of MuJoCo compiled it "
            f"({error}); add it again with `dressage envs add`"
        )
        raise InvalidArgument(message, field="environment", expected="a model that this MuJoCo compiled") from error


def load_model(path: Path) -> Any:
    """Compile a model of the catalogue."""
    import mujoco

    with quiet_loading():
        return mujoco.MjModel.from_xml_path(str(path))
