"""The tables. Protobuf messages are stored as bytes beside the columns that are searched or compared.

No type or default here is SQLite's own: the same schema serves PostgreSQL.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id", String(63), primary_key=True),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Session
    Column("state", Integer, nullable=False),
    Column("create_micros", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False, default=False),
    Column("version", BigInteger, nullable=False, default=1),
    Column("last_sequence", BigInteger, nullable=False, default=0),
    Column("cancel_reason", Text),  # set when a cancel was asked for; taken back by a resume
    Index("sessions_by_time", "create_micros", "id"),
)

ITERATIONS = Table(
    "iterations",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Iteration
    Column("version", BigInteger, nullable=False, default=1),
)

RUNS = Table(
    "runs",
    METADATA,
    Column("name", String(200), primary_key=True),
    Column("session", String(63), nullable=False),
    Column("iteration", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Run, without members
    Column("state", Integer, nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("failures", Integer, nullable=False, default=0),
    Column("closed", Boolean, nullable=False, default=True),  # no further assignments will come
    Column("checkpoint", String(500), nullable=False, default=""),  # key, relative to the run
    Column("code_fault", Boolean, nullable=False, default=False),  # the generated code is to blame for the failure
    Column("create_micros", BigInteger, nullable=False),
    Column("progress_micros", BigInteger, nullable=False, default=0),  # of the last progress event
    Column("version", BigInteger, nullable=False, default=1),
    Column("claimed_by", String(100), nullable=False, default="", server_default=""),  # executor that sees to it
    Index("runs_by_session", "session", "iteration", "create_micros"),
    Index("runs_by_state", "state"),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("id", String(80), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Member
)

ASSIGNMENTS = Table(
    "assignments",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("id", BigInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),  # dressage.internal.v1.Assignment
    Column("done", Boolean, nullable=False, default=False),
)

REPORTS = Table(
    "reports",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("member", String(80)),  # of evaluations
    Column("env_step", BigInteger),  # of evaluations
    Column("data", LargeBinary, nullable=False),  # dressage.internal.v1.Report
    UniqueConstraint("run", "member", "env_step", name="one_evaluation"),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Event
)

NOTES = Table(
    "notes",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("text", Text, nullable=False),
    Column("iteration", Integer),  # the iteration whose revision heeded it
)

DIRECTIONS = Table(
    "directions",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kind", String(20), nullable=False),  # proposal, criteria, rebase, approve
    Column("data", Text, nullable=False),
    Column("iteration", Integer),  # the iteration that followed it, or that an approval is for
)

LABELS = Table(
    "labels",
    METADATA,
    Column("rollout", String(500), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("score", Float, nullable=False),
    Column("comment", Text, nullable=False),
    Column("create_micros", BigInteger, nullable=False),
)

BENCHMARKS = Table(
    "benchmarks",
    METADATA,
    Column("id", String(63), primary_key=True),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Benchmark
    Column("ended", Boolean, nullable=False, default=False),
    Column("create_micros", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False, default=1),
)

EFFECTS = Table(
    "effects",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("name", String(200), primary_key=True),
)

REQUEST_IDS = Table(
    "request_ids",
    METADATA,
    Column("method", String(60), primary_key=True),
    Column("request_id", String(100), primary_key=True),
    Column("request_sha256", String(64), nullable=False),
    Column("resource", String(500), nullable=False),
)

SPEEDS = Table(
    "speeds",
    METADATA,
    Column("environment", String(120), primary_key=True),  # and who trains: `durations.kind_of_run`
    Column("pool", String(63), primary_key=True),
    Column("steps_per_second", Float, nullable=False),
)

EXECUTORS = Table(
    "executors",
    METADATA,
    Column("id", String(100), primary_key=True),  # {name}.{epoch}
    Column("name", String(80), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("beats", BigInteger, nullable=False, default=0),
    Column("dead", Boolean, nullable=False, default=False),
    Column("start_micros", BigInteger, nullable=False),
)

SHARED_SECRETS = Table(
    "shared_secrets",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
