"""The sandboxed process of a search over programs.

Programs are data: they are parsed and interpreted by the engine, never executed as Python. The process loads the code of a
registered language to play its programs.
"""

from __future__ import annotations

from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sandbox.pipe import Channel

from dressage_trainer.search import messages
from dressage_trainer.search.programs import BetterProgram, ProgramSearch
from dressage_trainer.search.running import Running

_REQUEST_SECONDS = 60.0


def search(channel: Channel) -> None:
    """Sandbox target: one search over programs, from its task or a state to its end."""
    request = channel.recv(timeout=_REQUEST_SECONDS)
    running = Running(channel, checkpoint_seconds=float(request["checkpoint_seconds"]))

    def send_improvement(better: BetterProgram) -> None:
        running.send(messages.ProgramImprovementMessage(better.evaluated, better.score, better.program))

    try:
        with ProgramSearch(messages.ProgramSearchTask.from_dict(request["task"]), tick=running.tick) as engine:
            if request["state"] is not None:
                engine.restore(request["state"])
                for better in engine.progress.improvements:
                    send_improvement(better)  # a report of the interrupted attempt may have been lost
            running.note(engine)
            while not engine.done:
                engine.advance(on_improvement=send_improvement)
                running.boundary(engine)
    except (InvalidArgument, FailedPrecondition) as error:
        running.send(messages.RefusalMessage(error.reason, error.message))
        return
    progress, best = engine.progress, engine.progress.improvements[-1]
    running.send(
        messages.ProgramEndMessage(
            evaluated=progress.evaluated,
            episodes=progress.episodes,
            cache_hits=progress.cache_hits,
            best_score=best.score,
            best_program=best.program,
            improvements=tuple((one.evaluated, one.score) for one in progress.improvements),
        )
    )
