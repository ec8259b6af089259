"""Two verdicts that differ to one verdict."""
