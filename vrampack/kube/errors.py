"""How a call to the API server may fail."""

from __future__ import annotations


class RefusedError(Exception):
    """A definite no (4xx): nothing was written."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class ResourceExpiredError(RefusedError):
    """410: the resourceVersion is too old; list again."""


class NoAnswerError(Exception):
    """5xx, a time-out or a cut line: whether anything was written is not known."""


class UnreachableError(NoAnswerError):
    """Connection refused: no server listens there, and nothing was sent."""


class SilentWatchError(NoAnswerError):
    """A watch that was silent for longer than it may be."""


class BrokenWatchError(NoAnswerError):
    """An open watch that was cut, or ended without a word: the server said nothing against its version."""


class CredentialsError(Exception):
    """No way in: neither a kubeconfig nor a service account."""
