"""Pictures to scores."""
