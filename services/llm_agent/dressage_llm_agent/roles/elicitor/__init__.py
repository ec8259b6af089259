"""Intent to measurable criteria."""
