"""The error of a release."""


class ReleaseError(Exception):
    """A release cannot be made; the message states what is wrong and what is expected."""
