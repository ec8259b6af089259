"""Candidates of search methods, evaluated on stock Gymnasium by sandboxed players that stay warm between assignments."""
