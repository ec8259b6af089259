"""Karel: task classes, initial states and the compiled interpreter."""
