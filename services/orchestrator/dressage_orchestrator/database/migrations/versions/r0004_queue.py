"""The queue of sessions that wait for admission."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column with a default, which the previous version writes during a rolling update: admitted."""
    op.add_column("sessions", sa.Column("queued_micros", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("sessions_by_queue", "sessions", ["queued_micros", "id"])
    op.create_index("sessions_by_state", "sessions", ["state"])
