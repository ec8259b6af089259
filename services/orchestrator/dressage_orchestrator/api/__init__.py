"""The servicers: each translates, calls, translates back. Rows are read and written in threads, off the event loop."""
