"""The command line. `main` holds the application; commands import what they need when they run.

`dressage --help` must answer at once, so no module here imports gRPC, protobuf, numpy or a service at its top, unless it is
itself imported only by a running command.
"""
