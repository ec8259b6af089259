"""The sandboxed process of a search: it runs the engine and answers requests for its state. It loads no generated code."""

from __future__ import annotations

import time
from typing import Any

from dressage.errors import DeadlineExceeded, InvalidArgument
from dressage.sandbox.pipe import Channel

from dressage_trainer.search import messages
from dressage_trainer.search.engine import Search

_REQUEST_SECONDS = 60.0
_ALIVE_SECONDS = 1.0


def search(channel: Channel) -> None:
    """Sandbox target: one search, from its task or a state to its end."""
    request = channel.recv(timeout=_REQUEST_SECONDS)
    task = messages.SearchTask.from_dict(request["task"])
    running = _Running(channel, checkpoint_seconds=float(request["checkpoint_seconds"]))
    try:
        with Search(task, tick=running.tick) as engine:
            if request["state"] is not None:
                engine.restore(request["state"])
            running.note(engine)
            while not engine.done:
                for better in engine.advance():
                    running.send(messages.Improved(better.evaluated, better.score, better.parameters))
                running.boundary(engine)
            result = engine.progress
    except InvalidArgument as error:
        running.send(messages.Refused(error.reason, error.message))
        return
    running.send(
        messages.Ended(
            evaluated=result.evaluated,
            env_steps=result.env_steps,
            best_score=result.best_score,
            best_parameters=result.best_parameters,
            improvements=result.improvements,
        )
    )


class _Running:
    """Reports of a running search: that it is alive, and its state, on a schedule and on request.

    The state is always that of the last boundary between blocks: a block in progress is done again.
    """

    def __init__(self, channel: Channel, *, checkpoint_seconds: float) -> None:
        self._channel = channel
        self._checkpoint_seconds = checkpoint_seconds
        self._state: dict[str, Any] = {}
        self._evaluated = self._env_steps = 0
        self._stored = self._reported = time.monotonic()

    def send(self, message: messages.SearchMessage) -> None:
        """Send a message to the supervisor."""
        self._channel.send(messages.to_dict(message))

    def boundary(self, engine: Search) -> None:
        """Note the state between two blocks, and send it if it is due."""
        self.note(engine)
        if time.monotonic() - self._stored >= self._checkpoint_seconds and not engine.done:
            self._send_state(requested=False)
        self.tick()

    def tick(self) -> None:
        """Answer a request for the state, and report once a second that the search is alive."""
        try:
            self._channel.recv(timeout=0)
        except DeadlineExceeded:
            pass
        else:
            self._send_state(requested=True)
        if time.monotonic() - self._reported >= _ALIVE_SECONDS:
            self._reported = time.monotonic()
            self.send(messages.Alive(self._evaluated, self._env_steps))

    def note(self, engine: Search) -> None:
        """Note the state between two blocks."""
        self._state = engine.state()
        self._evaluated, self._env_steps = engine.progress.evaluated, engine.progress.env_steps

    def _send_state(self, *, requested: bool) -> None:
        self._stored = time.monotonic()
        self.send(messages.Stored(self._state, self._evaluated, self._env_steps, requested))
