"""Results of earlier rounds to a reflection."""
