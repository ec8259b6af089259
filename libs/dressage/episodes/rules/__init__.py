"""Rules of environments as functions that numba compiles; each equals its reference environment step by step."""
