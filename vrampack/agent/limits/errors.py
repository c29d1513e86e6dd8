"""What can go wrong with a limit."""

from __future__ import annotations


class LimitError(Exception):
    """A limit could not be put in force: the container must not start."""


class ImpossibleBackEndError(ValueError):
    """The back end that was asked for cannot work on this node; the message says what is missing."""
