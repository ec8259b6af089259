"""What a person asks for besides notes: a reward, criteria, another iteration to go on from, an approval."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "directions",
        sa.Column("session", sa.String(63), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("iteration", sa.Integer),
    )
