"""What `import dressage` offers, and what it shares with the command line.

The names of `dressage` are in `running`, `checking`, `evaluation`, `policy` and `environment`; each is imported at its first
use. The other modules turn options into a session's spec, follow a session's events and read its results. The command line
uses those as well.
"""
