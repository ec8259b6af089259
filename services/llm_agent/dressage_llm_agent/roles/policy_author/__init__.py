"""Intent and earlier policies to a policy in Python."""
