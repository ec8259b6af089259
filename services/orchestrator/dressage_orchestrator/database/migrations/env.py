"""Environment of Alembic: runs migrations on the connection that `database.migrate` provides."""

from __future__ import annotations

from alembic import context

from dressage_orchestrator.database.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
