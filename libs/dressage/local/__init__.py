"""Servers of this machine: the services in this process, and how commands and functions reach a server."""
