"""Starting trainers: the `Launcher` protocol, processes of this machine behind it, and the controller that decides."""
