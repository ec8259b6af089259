"""What the supervisor does with each kind of assignment."""
