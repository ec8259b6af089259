"""The trainer: a supervisor that talks, and sandboxed processes that learn, evaluate and score."""
