"""The sandboxed process of a search: it runs the engine and answers requests for its state. It loads no generated code."""

from __future__ import annotations

from typing import Any

from dressage.errors import InvalidArgument
from dressage.policies.sb3_baselines import BASELINES
from dressage.sandbox.pipe import Channel

from dressage_trainer.search import messages
from dressage_trainer.search.baselines import BaselineSearch
from dressage_trainer.search.engine import Improvement, Progress, Search
from dressage_trainer.search.running import Running

_REQUEST_SECONDS = 60.0


def search(channel: Channel) -> None:
    """Sandbox target: one search, from its task or a state to its end."""
    request = channel.recv(timeout=_REQUEST_SECONDS)
    task = messages.SearchTask.from_dict(request["task"])
    running = Running(channel, checkpoint_seconds=float(request["checkpoint_seconds"]))
    try:
        result = _train(task, running) if task.algorithm in BASELINES else _search(task, running, request["state"])
    except InvalidArgument as error:
        running.send(messages.RefusalMessage(error.reason, error.message))
        return
    running.send(
        messages.EndMessage(
            evaluated=result.evaluated,
            env_steps=result.env_steps,
            best_score=result.best_score,
            best_parameters=result.best_parameters,
            improvements=result.improvements,
        )
    )


def _search(task: messages.SearchTask, running: Running, state: dict[str, Any] | None) -> Progress:
    with Search(task, tick=running.tick) as engine:
        if state is not None:
            engine.restore(state)
        running.note(engine)
        while not engine.done:
            for better in engine.advance():
                _send_improvement(running, better)
            running.boundary(engine)
        return engine.progress


def _train(task: messages.SearchTask, running: Running) -> Progress:
    with BaselineSearch(task, tick=running.tick) as baseline:
        running.note(baseline)
        baseline.run(
            on_improvement=lambda better: _send_improvement(running, better),
            boundary=lambda: running.boundary(baseline),
        )
        return baseline.progress


def _send_improvement(running: Running, better: Improvement) -> None:
    running.send(messages.ImprovementMessage(better.evaluated, better.score, better.parameters))
