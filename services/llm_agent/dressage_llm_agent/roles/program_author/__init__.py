"""Task to programs."""
