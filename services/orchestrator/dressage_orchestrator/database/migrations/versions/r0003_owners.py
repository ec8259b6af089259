"""Owners of sessions, the bytes that their trainers stored, and charges of model calls outside of sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns with defaults, which the previous version writes during a rolling update."""
    op.add_column("sessions", sa.Column("owner", sa.String(200), nullable=False, server_default=""))
    op.add_column("sessions", sa.Column("artifact_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("sessions_by_owner", "sessions", ["owner"])
    op.create_table(
        "charges",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("principal", sa.String(200), nullable=False),
        sa.Column("dollars", sa.Float, nullable=False),
        sa.Column("create_micros", sa.BigInteger, nullable=False),
    )
    op.create_index("charges_by_time", "charges", ["create_micros", "principal"])
