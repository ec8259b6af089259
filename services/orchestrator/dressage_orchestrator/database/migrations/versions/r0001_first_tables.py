"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    _sessions()
    _runs()
    _assignments()
    _rest()


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(63), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("create_micros", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("cancel_reason", sa.Text),
    )
    op.create_index("sessions_by_time", "sessions", ["create_micros", "id"])
    op.create_table(
        "iterations",
        sa.Column("session", sa.String(63), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("session", sa.String(63), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "notes",
        sa.Column("session", sa.String(63), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer),
    )
    op.create_table(
        "directions",
        sa.Column("session", sa.String(63), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("pool", sa.String(63), nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("state_micros", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("counted_attempt", sa.Integer, nullable=False),
        sa.Column("idle_micros", sa.BigInteger, nullable=False),
        sa.Column("release", sa.Boolean, nullable=False),
        sa.Column("claimed_by", sa.String(100), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("session", "number", name="one_run"),
    )
    op.create_index("runs_by_state", "runs", ["state"])
    op.create_table(
        "report_sequences",
        sa.Column("run", sa.String(200), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("kept", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "executors",
        sa.Column("id", sa.String(100), primary_key=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("heartbeats", sa.BigInteger, nullable=False),
        sa.Column("expired", sa.Boolean, nullable=False),
        sa.Column("start_micros", sa.BigInteger, nullable=False),
    )


def _assignments() -> None:
    op.create_table(
        "assignments",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("work", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("checkpoint", sa.String(500), nullable=False),
        sa.Column("generated_code", sa.Boolean, nullable=False),
        sa.Column("env_steps", sa.BigInteger, nullable=False),
        sa.Column("create_micros", sa.BigInteger, nullable=False),
        sa.Column("progress_micros", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("session", "id", name="one_assignment"),
    )
    op.create_index("assignments_by_time", "assignments", ["session", "iteration", "create_micros"])
    op.create_index("assignments_by_state", "assignments", ["state"])
    op.create_table(
        "members",
        sa.Column("assignment", sa.String(200), primary_key=True),
        sa.Column("id", sa.String(80), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "candidates",
        sa.Column("assignment", sa.String(200), primary_key=True),
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "reports",
        sa.Column("assignment", sa.String(200), primary_key=True),
        sa.Column("item", sa.String(200), primary_key=True),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def _rest() -> None:
    op.create_table(
        "labels",
        sa.Column("rollout", sa.String(500), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("score", sa.Float, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("create_micros", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "benchmarks",
        sa.Column("id", sa.String(63), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("create_micros", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("session", sa.String(63), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
    )
    op.create_table(
        "request_ids",
        sa.Column("method", sa.String(60), primary_key=True),
        sa.Column("request_id", sa.String(100), primary_key=True),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.Column("resource", sa.String(500), nullable=False),
    )
    op.create_table(
        "speeds",
        sa.Column("environment", sa.String(120), primary_key=True),
        sa.Column("pool", sa.String(63), primary_key=True),
        sa.Column("steps_per_second", sa.Float, nullable=False),
    )
    op.create_table(
        "shared_secrets",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
