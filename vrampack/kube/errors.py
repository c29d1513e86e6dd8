"""How a call to the API server may fail."""

from __future__ import annotations


class RefusedError(Exception):
    """The API server refused the call (4xx): nothing was written."""

    def __init__(
        self, status: int, reason: str, message: str, *, subject: str = "", retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.retry_after_seconds = retry_after_seconds
        """The shortest pause before the next try; 0 where the API server names none."""
        self.status = status
        self.reason = reason
        self.message = message
        self.subject = subject
        """The object that the refusal is about, as `pods/app-0`; empty where the API server names none."""


class ResourceExpiredError(RefusedError):
    """410: the resourceVersion is too old; list again."""


class NoAnswerError(Exception):
    """5xx, a time-out, a lost connection or an answer of another server: it is not known whether anything was written."""

    def __init__(self, text: str = "", *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds
        """As for `RefusedError`."""


class UnsentError(NoAnswerError):
    """All connections stayed busy, or none could be made in time: nothing was sent, so nothing was written."""


class UnreachableError(UnsentError):
    """Connection refused: no server listens there."""


class ForeignAnswerError(NoAnswerError):
    """Another server answered in place of the API server: a balancer, a proxy, a firewall."""


class UnknownPathError(ForeignAnswerError):
    """404 without a Status: the API server says so of a path that it does not serve, and a balancer that finds no server."""


class SilentWatchError(NoAnswerError):
    """A watch that was silent for longer than it may be."""


class BrokenWatchError(NoAnswerError):
    """An open watch that was cut, or ended without an event: the server did not reject its version."""


class CredentialsError(Exception):
    """Neither a kubeconfig nor a service account gives usable credentials."""
