"""The gRPC servicers. Rows are read and written in threads, outside of the event loop."""
