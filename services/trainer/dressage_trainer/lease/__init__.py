"""What a trainer holds for its whole lease: the stream to the orchestrator, spare sandboxed processes, the way to the store."""
