"""What several benchmarks share: our trainer and the peer's way of training, each measured in processes of their own."""
