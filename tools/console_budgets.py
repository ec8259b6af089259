"""Fill a server's data folder for the budgets of the console's page: 1,000 sessions, and one with 100,000 points of metrics.

    tools/console_budgets.py FOLDER

The rows are those that the orchestrator writes, by its own modules. The server of the folder does not run meanwhile.
"""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import events, sessions
from dressage_orchestrator.database.engine import Database, Transaction, sqlite_url

SESSIONS = 1_000
CURVES = "curves"
MEMBERS, METRICS, POINTS = 4, 25, 1_000
_ENVIRONMENTS = ("CartPole-v1", "Hopper-v5", "HalfCheetah-v5", "InvertedPendulum-v5")
_STATES = (v1.SESSION_STATE_SUCCEEDED, v1.SESSION_STATE_EXHAUSTED, v1.SESSION_STATE_CANCELLED)


def create_session(tx: Transaction, session: str, number: int) -> None:
    """An ended session with a score and a cost."""
    environment = f"environments/{_ENVIRONMENTS[number % len(_ENVIRONMENTS)]}"
    intent = f"behaviour {number}: run forward fast and keep the torso upright"
    sessions.create(tx, session, v1.SessionSpec(intent=intent, environment=environment, model="template/v1"))

    def end(message: v1.Session) -> None:
        message.state = _STATES[number % len(_STATES)]
        message.current_iteration = 1
        message.best_score = (number % 100) / 100
        message.cost.dollars = number / 100
        message.start_time.CopyFrom(timestamp(tx.now - timedelta(minutes=number)))
        message.end_time.CopyFrom(timestamp(tx.now - timedelta(minutes=number / 2)))

    sessions.change(tx, session, end)


def curves(tx: Transaction) -> None:
    """Metrics of all members of one training."""
    assignment = f"sessions/{CURVES}/iterations/1/assignments/train"
    sessions.upsert_iteration(tx, CURVES, 1, lambda iteration: setattr(iteration, "planned_change", "none"))
    for point in range(1, POINTS + 1):
        progress = ev.Progress(assignment=assignment, activity="training")
        for number in range(MEMBERS):
            member = progress.members.add(name=f"{assignment}/members/default-s{number}", config="default", seed=number)
            member.env_steps, member.target_env_steps = point * 2_048, POINTS * 2_048
            for metric in range(METRICS):
                member.metrics[f"metric_{metric:02}"] = math.sin(point / 40 + metric) + number + metric
        events.append(tx, CURVES, ev.Event(progress=progress), iteration=1)


def main(folder: Path) -> None:
    """Write all rows."""
    now = datetime.now(UTC)
    database = Database(sqlite_url(folder / "dressage.db"), clock=lambda: now)
    with database.begin() as tx:
        for number in range(SESSIONS - 1):
            create_session(tx, f"many-{number}", number)
        create_session(tx, CURVES, 0)
        curves(tx)
    database.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
