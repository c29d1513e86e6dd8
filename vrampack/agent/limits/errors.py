"""The errors of limits and back ends."""

from __future__ import annotations


class LimitError(Exception):
    """A limit could not be put in force: the container must not start."""


class ImpossibleBackEndError(ValueError):
    """The requested back end cannot work on this node; the message says what is missing."""
