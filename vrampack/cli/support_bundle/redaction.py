"""Removes what looks like a secret from free text: logs, metrics, messages. Pure.

Fields that may have any text are not read at all; this is for text that must be read.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_TELLING_NAMES = (
    "passw(?:or)?d|pwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|key[_-]?data|authorization|\bauth\b|cookie|signature|\bsig\b|dockerconfigjson"
)
_NAME = rf"""(?:{_TELLING_NAMES})[\w.-]{{0,60}}\\*["']?"""
_EQUALS = r"""\s{0,9}[:=]\s{0,9}(?:[|>][+-]?\s{1,99})?(?:(?:bearer|basic)\s+)?"""
"""A YAML value may begin on its own line."""
_VALUE = r"""(?:(?P<quote>\\*["'])(?:(?!(?P=quote)).)+|[^\s,;&"'{}]+)"""
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{6,400}\.[\w-]+(?:\.[\w-]*)?"),  # a JSON web token: service accounts have them
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[opsur]_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}"),
    re.compile(r"\bLS0tLS1CRUdJTi[\w+/=]*"),  # "-----BEGIN" in base64, as a kubeconfig holds certificates and keys
    re.compile(r"\bhf_[A-Za-z0-9]{16,}|\bnvapi-[\w-]{16,}|\bsk-[\w-]{16,}"),
)
_PREFIXED_PATTERNS = (
    re.compile(r"(?P<kept>\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE),
    re.compile(r"""(?P<kept>\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@"']{1,400}(?=@)""", re.IGNORECASE),
    re.compile(rf"(?P<kept>{_NAME}{_EQUALS}){_VALUE}", re.IGNORECASE),
    # An entry of `env`, in JSON, in YAML or as programs print it.
    re.compile(rf"""(?P<kept>{_NAME}[,\s]{{1,99}}\\*["']?value\\*["']?{_EQUALS}){_VALUE}""", re.IGNORECASE),
    re.compile(rf"(?P<kept>(?<![\w-])--(?=[a-z])[a-z-]{{0,60}}{_NAME}\s{{1,9}}){_VALUE}", re.IGNORECASE),
)
"""Of these the name stays. The patterns match nothing before it, and bound every repetition: a log line may be a megabyte."""


def redact_text(text: str) -> str:
    """The text with `[redacted]` in place of keys, tokens, passwords, and of values whose name sounds like one of them."""
    for pattern in _PATTERNS:
        text = pattern.sub(REDACTED, text)
    for pattern in _PREFIXED_PATTERNS:
        text = pattern.sub(rf"\g<kept>{REDACTED}", text)
    return text
