"""A session's durable workflow on DBOS: `durable` runs it, `flow` is what methods see of it."""
