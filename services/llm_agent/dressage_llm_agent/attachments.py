"""Loads the images and clips of messages from the artifact store, within a size limit."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

from dressage.artifacts.store import ArtifactStore
from dressage.errors import FailedPrecondition, NotFound

from dressage_llm_agent.provider.base import Attachment, Message

MAX_ATTACHMENT_BYTES = 14 * 1024 * 1024
"""Limit for all attachments of a request: in base64 they stay below 20 MB, the smallest limit of the large providers."""

MAX_IMAGE_BYTES = 3_700_000
"""Limit for one image: in base64 it stays below 5 MB, Anthropic's limit."""

MAX_IMAGES = 100
"""Limit for the images of a request, Anthropic's."""


class AttachmentLoader:
    """Loads the attachments of messages.

    :param store: where the files are; None: no store is configured.
    """

    def __init__(self, store: ArtifactStore | None) -> None:
        self._store = store

    async def load(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages with the contents of their attachments.

        :raises FailedPrecondition: ``NO_ARTIFACT_STORE`` without a store, ``ATTACHMENTS_TOO_LARGE`` above
            `MAX_ATTACHMENT_BYTES`, `MAX_IMAGE_BYTES` or `MAX_IMAGES`.
        :raises NotFound: ``ATTACHMENT_NOT_FOUND``.
        """
        remaining, loaded = MAX_ATTACHMENT_BYTES, []
        if (images := sum(a.kind == "image" for message in messages for a in message.attachments)) > MAX_IMAGES:
            raise _too_large(f"a request has {images} images, more than {MAX_IMAGES}; request fewer frames")
        for message in messages:
            attachments = []
            for attachment in message.attachments:
                attachments.append(await asyncio.to_thread(self._read, attachment, remaining))
                remaining -= len(attachments[-1].data)
            loaded.append(replace(message, attachments=tuple(attachments)) if attachments else message)
        return tuple(loaded)

    def _read(self, attachment: Attachment, limit: int) -> Attachment:
        if self._store is None:
            message = "llm-agent has no artifact store to read images from; set DRESSAGE_LLM_AGENT_STORE_URL"
            raise FailedPrecondition(message, reason="NO_ARTIFACT_STORE")
        data = bytearray()
        try:
            for part in self._store.read(attachment.key):
                data += part
                if len(data) > limit:
                    raise _too_large(
                        f"the images of a request exceed {MAX_ATTACHMENT_BYTES} bytes; request fewer or smaller frames"
                    )
                if attachment.kind == "image" and len(data) > MAX_IMAGE_BYTES:
                    raise _too_large(f"{attachment.key} exceeds {MAX_IMAGE_BYTES} bytes; request smaller frames")
        except NotFound as error:
            message = f"the artifact store has no file {attachment.key!r}, which a message refers to"
            raise NotFound(message, reason="ATTACHMENT_NOT_FOUND", metadata={"key": attachment.key}) from error
        return replace(attachment, sha256=hashlib.sha256(data).hexdigest(), data=bytes(data))


def _too_large(message: str) -> FailedPrecondition:
    return FailedPrecondition(message, reason="ATTACHMENTS_TOO_LARGE")
