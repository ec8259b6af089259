"""The tables of `database.tables`.

Before the first release a change of the tables changes this revision, and databases of development are made anew. With the
release, write the tables out here, so that later revisions can change them.
"""

from __future__ import annotations

from alembic import op
from dressage_orchestrator.database.tables import METADATA

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    METADATA.create_all(op.get_bind(), checkfirst=False)
