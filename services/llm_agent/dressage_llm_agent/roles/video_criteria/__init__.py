"""Intent to criteria that are visible in frames."""
