"""The lifecycle of a session: its durable workflow on DBOS and the interface of methods."""
