"""Intent to reward."""
