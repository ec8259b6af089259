"""History to a revised reward, with tools that read the history."""
