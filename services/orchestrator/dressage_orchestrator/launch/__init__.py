"""Starting trainers: the `Launcher` protocol, its implementations (local processes, Kubernetes Jobs) and the run controller."""
