"""What sessions propose: a package for each method, behind `lifecycle.method.Method`, registered as an entry point."""
