"""The tables. Protobuf messages are stored as bytes, together with the columns that queries filter or compare.

Types and defaults are common to SQLite and PostgreSQL.
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
    Column("summary", LargeBinary, nullable=False),  # the same for lists, see `summaries`
    Column("state", Integer, nullable=False),
    Column("create_micros", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False, default=False),
    Column("version", BigInteger, nullable=False, default=1),
    Column("last_sequence", BigInteger, nullable=False, default=0),
    Column("cancel_reason", Text),  # set when a cancellation is requested; cleared by a resume
    Column("end_micros", BigInteger, nullable=False, default=0),  # 0: active
    Column("delete_micros", BigInteger, nullable=False, default=0),  # 0: not deleted
    Column("removed", Integer, nullable=False, default=0),  # what retention removed, see `Removed`
    Column("owner", String(200), nullable=False, default=""),  # name of a principal
    Column("method", String(200), nullable=False, default=""),
    Column("artifact_bytes", BigInteger, nullable=False, default=0),  # stored by its trainers and this server
    Column("queued_micros", BigInteger, nullable=False, default=0),  # since when it waits; 0: admitted
    Column("queue_change", BigInteger, nullable=False, default=0),  # number of the change; 0: it never waited
    Index("sessions_by_time", "create_micros", "id"),
    Index("sessions_by_end", "removed", "end_micros"),
    Index("sessions_by_owner", "owner"),
    Index("sessions_by_method", "deleted", "state", "method"),
    Index("sessions_by_queue", "queued_micros", "id"),
    Index("sessions_by_queue_change", "queue_change"),
    Index("sessions_by_admission", "state", "queued_micros"),
    Index("sessions_by_state", "state", "create_micros", "id"),
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
    Column("number", Integer, nullable=False),  # in its session, from 1
    Column("pool", String(63), nullable=False),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Run
    Column("state", Integer, nullable=False),
    Column("state_micros", BigInteger, nullable=False),  # since when
    Column("attempt", Integer, nullable=False, default=0),
    Column("counted_attempt", Integer, nullable=False, default=0),  # newest attempt whose failure was counted
    Column("idle_micros", BigInteger, nullable=False, default=0),  # since when it has no assignment; 0 while it has one
    Column("release", Boolean, nullable=False, default=False),  # release it as soon as it is idle
    Column("claimed_by", String(100), nullable=False, default=""),  # executor that starts and watches its trainers
    Column("version", BigInteger, nullable=False, default=1),
    UniqueConstraint("session", "number", name="one_run"),
    Index("runs_by_state", "state"),
)

ASSIGNMENTS = Table(
    "assignments",
    METADATA,
    Column("name", String(200), primary_key=True),
    Column("session", String(63), nullable=False),
    Column("iteration", Integer, nullable=False),
    Column("id", BigInteger, nullable=False),  # number in the session, by which trainers identify it
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Assignment, without members and candidates
    Column("work", LargeBinary, nullable=False),  # dressage.internal.v1.Assignment, as requested
    Column("state", Integer, nullable=False),
    Column("failures", Integer, nullable=False, default=0),
    Column("checkpoint", String(500), nullable=False, default=""),  # key, relative to the assignment
    Column("generated_code", Boolean, nullable=False, default=False),  # generated code caused the failure
    Column("env_steps", BigInteger, nullable=False, default=0),  # of candidates or a search
    Column("create_micros", BigInteger, nullable=False),
    Column("progress_micros", BigInteger, nullable=False, default=0),  # of the last progress event
    Column("version", BigInteger, nullable=False, default=1),
    UniqueConstraint("session", "id", name="one_assignment"),
    Index("assignments_by_time", "session", "iteration", "create_micros"),
    Index("assignments_by_state", "state"),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("assignment", String(200), primary_key=True),
    Column("id", String(80), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.Member
)

CANDIDATES = Table(
    "candidates",
    METADATA,
    Column("assignment", String(200), primary_key=True),
    Column("id", String(200), primary_key=True),
    Column("data", LargeBinary, nullable=False),  # dressage.v1.CandidateResult
)

REPORTS = Table(
    "reports",
    METADATA,
    Column("assignment", String(200), primary_key=True),
    Column("item", String(200), primary_key=True),
    Column("run", String(200), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),  # dressage.internal.v1.Report
)

REPORT_SEQUENCES = Table(
    "report_sequences",
    METADATA,
    Column("run", String(200), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("sequence", BigInteger, nullable=False),  # of the last report that was accepted
    Column("kept", BigInteger, nullable=False),  # items and checkpoints that were accepted
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
    Column("iteration", Integer),  # the iteration that took it
)

DIRECTIONS = Table(
    "directions",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kind", String(20), nullable=False),  # proposal, criteria, rebase, from_parent, approve
    Column("data", Text, nullable=False),
    Column("iteration", Integer),  # the iteration that took it, or that an approval is for
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
    Column("summary", LargeBinary, nullable=False),  # the same for lists, see `summaries`
    Column("ended", Boolean, nullable=False, default=False),
    Column("create_micros", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False, default=1),
)

CHARGES = Table(
    "charges",
    METADATA,
    Column("key", String(200), primary_key=True),
    Column("principal", String(200), nullable=False),
    Column("dollars", Float, nullable=False),
    Column("create_micros", BigInteger, nullable=False),
    Index("charges_by_time", "create_micros", "principal"),
)

IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    METADATA,
    Column("session", String(63), primary_key=True),
    Column("name", String(200), primary_key=True),
)

REQUEST_IDS = Table(
    "request_ids",
    METADATA,
    Column("principal", String(200), primary_key=True),  # name of the caller
    Column("method", String(60), primary_key=True),
    Column("request_id", String(100), primary_key=True),
    Column("request_sha256", String(64), nullable=False),
    Column("resource", String(500), nullable=False),
    Column("create_micros", BigInteger, nullable=False, default=0),
    Index("request_ids_by_time", "create_micros"),
)

SPEEDS = Table(
    "speeds",
    METADATA,
    Column(
        "environment", String(120), primary_key=True
    ),  # and other settings that determine the speed: `estimates.kind_of_run`
    Column("pool", String(63), primary_key=True),
    Column("steps_per_second", Float, nullable=False),
)

EXECUTORS = Table(
    "executors",
    METADATA,
    Column("id", String(100), primary_key=True),  # {name}.{epoch}
    Column("name", String(80), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("heartbeats", BigInteger, nullable=False, default=0),
    Column("expired", Boolean, nullable=False, default=False),
    Column("start_micros", BigInteger, nullable=False),
)

SHARED_SECRETS = Table(
    "shared_secrets",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

COUNTERS = Table(
    "counters",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(63), primary_key=True),  # of the periodic work
    Column("executor", String(100), nullable=False),  # the only one that does it
    Column("run_micros", BigInteger, nullable=False),  # when it was last begun
)

# Its condition must be written out, so that the planner sees that the query of the queue implies it.
Index(
    "sessions_by_cancelled_wait",
    SESSIONS.c.queued_micros,
    SESSIONS.c.id,
    sqlite_where=SESSIONS.c.cancel_reason.is_not(None),
    postgresql_where=SESSIONS.c.cancel_reason.is_not(None),
)

STAMPS = Table(
    "stamps",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("value", Text, nullable=False),  # see `database.stamp`
)
