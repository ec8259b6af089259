"""Loads the pictures that messages name from the artifact store, within a bound."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

from dressage.artifacts.store import ArtifactStore
from dressage.errors import FailedPrecondition, NotFound

from dressage_llm_agent.provider.base import Attachment, Message

MAX_PICTURE_BYTES = 16 * 1024 * 1024
"""All pictures of one request together; providers refuse requests not much larger."""


class PictureLoader:
    """Gives messages the bytes of their attachments.

    :param store: where pictures lie; None: nowhere.
    """

    def __init__(self, store: ArtifactStore | None) -> None:
        self._store = store

    async def load(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with loaded attachments.

        :raises FailedPrecondition: ``NO_ARTIFACT_STORE`` without a store, ``FOOTAGE_TOO_LARGE`` above `MAX_PICTURE_BYTES`.
        :raises NotFound: ``PICTURE_NOT_FOUND``.
        """
        left, loaded = MAX_PICTURE_BYTES, []
        for message in messages:
            attachments = []
            for attachment in message.attachments:
                attachments.append(await asyncio.to_thread(self._read, attachment, left))
                left -= len(attachments[-1].data)
            loaded.append(replace(message, attachments=tuple(attachments)) if attachments else message)
        return tuple(loaded)

    def _read(self, attachment: Attachment, left: int) -> Attachment:
        if self._store is None:
            message = "llm-agent has no artifact store to read pictures from; set DRESSAGE_LLM_AGENT_STORE_URL"
            raise FailedPrecondition(message, reason="NO_ARTIFACT_STORE")
        data = bytearray()
        try:
            for part in self._store.read(attachment.key):
                data += part
                if len(data) > left:
                    raise _too_large()
        except NotFound as error:
            message = f"there is no picture {attachment.key!r} in the artifact store"
            raise NotFound(message, reason="PICTURE_NOT_FOUND", metadata={"key": attachment.key}) from error
        return replace(attachment, sha256=hashlib.sha256(data).hexdigest(), data=bytes(data))


def _too_large() -> FailedPrecondition:
    message = f"the pictures of one request have more than {MAX_PICTURE_BYTES} bytes; show fewer or smaller ones"
    return FailedPrecondition(message, reason="FOOTAGE_TOO_LARGE")
