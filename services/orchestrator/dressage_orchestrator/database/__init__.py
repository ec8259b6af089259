"""What the orchestrator remembers. Rows change only through the modules here, each with its event in one transaction."""
