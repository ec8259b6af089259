"""Intent to judge."""
