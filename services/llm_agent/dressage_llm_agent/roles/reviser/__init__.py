"""History to a revised reward, with tools to look at the history."""
