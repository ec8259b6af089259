"""Pictures and a question to an answer."""
