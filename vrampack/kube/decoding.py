"""What all decoders of JSON from outside share."""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding may raise: invalid UTF-8 and endless nesting raise Python's own errors."""

NULL = msgspec.Raw(b"null")
"""A field that is missing."""
