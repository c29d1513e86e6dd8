"""Errors while reading the cluster."""

from __future__ import annotations


class ReadError(Exception):
    """The cluster cannot be read. The message is for the user; empty when the cause was already shown."""


class ForbiddenListError(ReadError):
    """The user may not list this in the whole cluster."""


class ExpiredListError(ReadError):
    """The list is too old to be continued and must be read from its beginning."""


class DamagedObjectError(ValueError):
    """An object is not as the API server writes it; the message names the field."""
