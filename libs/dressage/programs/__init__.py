"""Programs of small languages: their text, the readers of what a model wrote, and their printers.

A program is parsed, never executed as Python. `syntax` defines the tree that all parsers return.
"""
