"""The command line. `main` has the application; commands import what they need when they run.

`dressage --help` must be fast: modules that declare options import no gRPC, protobuf, numpy or service at their top. The
modules that do the work are imported by the running command only.
"""
