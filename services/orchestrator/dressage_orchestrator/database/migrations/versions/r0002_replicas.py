"""Several servers on one database: who they are, whose each run is, and what they must all know."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the tables and the column."""
    op.create_table(
        "executors",
        sa.Column("id", sa.String(100), primary_key=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("dead", sa.Boolean, nullable=False),
        sa.Column("start_micros", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "shared_secrets",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.add_column("runs", sa.Column("claimed_by", sa.String(100), nullable=False, server_default=""))
