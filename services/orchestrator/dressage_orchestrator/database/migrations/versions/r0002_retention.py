"""What retention needs: ends and deletions of sessions, ages of request ids, leases of periodic work.

The defaults let servers of the previous version write to the new tables; 0 means unknown, and retention fills it in.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns and the table."""
    for name in ("end_micros", "delete_micros"):
        op.add_column("sessions", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("removed", sa.Integer, nullable=False, server_default="0"))
    op.create_index("sessions_by_end", "sessions", ["removed", "end_micros"])
    op.add_column("request_ids", sa.Column("create_micros", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("request_ids_by_time", "request_ids", ["create_micros"])
    op.create_table(
        "leases",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("executor", sa.String(100), nullable=False),
        sa.Column("run_micros", sa.BigInteger, nullable=False),
    )
