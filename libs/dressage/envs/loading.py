"""Loading models without MuJoCo's chatter: its warnings about Gymnasium's own model files are nothing that a user can act on.

By default MuJoCo prints them and writes MUJOCO_LOG.TXT into the current folder, once for each model loaded. Warnings of
a running simulation are left alone: the handler is in place during the loading only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# The handler is one for the whole process.
_LOCK = threading.RLock()


@contextmanager
def quiet_loading() -> Iterator[list[str]]:
    """Collects MuJoCo's warnings instead of printing them; yields the list that they go to."""
    import mujoco

    warnings: list[str] = []
    with _LOCK:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(warnings.append)
        try:
            yield warnings
        finally:
            mujoco.set_mju_user_warning(before)
