"""The sandboxed side of `dressage envs add gymnasium:MODULE:ID`: imports the module and describes the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dressage.errors import DressageError
from dressage.sandbox.pipe import Channel

FOLDER = "environments"
"""Folder of the scratch folder into which the environment is written, in the form of `dressage.envs.custom`."""

_START_SECONDS = 60.0


def serve(channel: Channel) -> None:
    """Sandbox target: describe the environment of the request and answer with an empty message, or with what is wrong."""
    request = channel.recv(timeout=_START_SECONDS)
    from dressage.envs import adding, custom

    folder = Path.cwd() / FOLDER
    folder.mkdir()
    os.environ[custom.VARIABLE] = str(folder)
    if request["source"]:
        sys.path.insert(0, request["source"])
    try:
        adding.add_registered(request["environment"])
    except DressageError as error:
        channel.send({"problem": error.message})
    except Exception as error:  # the module's own
        channel.send({"problem": f"{type(error).__name__}: {error}"})
    else:
        channel.send({"problem": ""})
