"""Dressage: describe a behaviour in words, get a trained policy. This package holds what its services share."""
