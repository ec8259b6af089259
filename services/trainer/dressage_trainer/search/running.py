"""What every process of a search reports while it runs: that it is alive, and its state."""

from __future__ import annotations

import time
from typing import Any, Protocol

from dressage.errors import DeadlineExceeded
from dressage.sandbox.pipe import Channel

from dressage_trainer.search import messages

_ALIVE_SECONDS = 1.0


class Counts(Protocol):
    """What a search has done so far."""

    @property
    def evaluated(self) -> int:
        """Candidates."""

    @property
    def env_steps(self) -> int:
        """Environment steps."""


class Engine(Protocol):
    """A search in progress."""

    @property
    def progress(self) -> Counts:
        """What it has done."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def state(self) -> dict[str, Any]:
        """Return the state between two blocks."""


class Running:
    """Reports of a running search: that it is alive, and its state, on a schedule and on request.

    The state is always that of the last boundary between blocks: a block in progress is done again.
    """

    def __init__(self, channel: Channel, *, checkpoint_seconds: float) -> None:
        self._channel = channel
        self._checkpoint_seconds = checkpoint_seconds
        self._state: dict[str, Any] = {}
        self._evaluated = self._env_steps = 0
        self._state_time = self._report_time = time.monotonic()

    def send(self, message: messages.SearchMessage) -> None:
        """Send a message to the supervisor."""
        self._channel.send(messages.to_dict(message))

    def boundary(self, engine: Engine) -> None:
        """Note the state between two blocks, and send it if it is due."""
        self.note(engine)
        if time.monotonic() - self._state_time >= self._checkpoint_seconds and not engine.done:
            self._send_state(requested=False)
        self.tick()

    def tick(self) -> None:
        """Answer a request for the state, and report once a second that the search is alive."""
        try:
            # The search is sent one kind of message, so any one is a request for the state.
            self._channel.recv(timeout=0)
        except DeadlineExceeded:
            pass
        else:
            self._send_state(requested=True)
        if time.monotonic() - self._report_time >= _ALIVE_SECONDS:
            self._report_time = time.monotonic()
            self.send(messages.ProgressMessage(self._evaluated, self._env_steps))

    def note(self, engine: Engine) -> None:
        """Note the state between two blocks."""
        self._state = engine.state()
        self._evaluated, self._env_steps = engine.progress.evaluated, engine.progress.env_steps

    def _send_state(self, *, requested: bool) -> None:
        self._state_time = time.monotonic()
        self.send(messages.StateMessage(self._state, self._evaluated, self._env_steps, requested))
