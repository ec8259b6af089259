"""The steps by which the state database came to its present tables, run by `database.migrate` through Alembic."""
