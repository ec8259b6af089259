"""Golden files, their recorder and the test that compares them; see `record`."""
