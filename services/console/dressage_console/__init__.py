"""The console: the public API and the page for browsers, by HTTP."""
