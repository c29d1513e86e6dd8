"""Lists in pages: one snapshot, cut where the client asked, with a token that says where the next page begins."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from vrampack.simulator import errors
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.selectors import ObjectSelector


class ContinueToken(msgspec.Struct, frozen=True):
    """The content of the opaque `continue`: which snapshot, and the first key of the next page."""

    version: int = msgspec.field(name="rv")
    start: str
    v: str = "meta.k8s.io/v1"

    @classmethod
    def parse_text(cls, text: str) -> Self:
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return msgspec.json.decode(raw, type=cls)
        except (binascii.Error, ValueError, msgspec.DecodeError) as error:
            raise errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error

    def encode_text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Some objects of the state at `version`; `token` and `remaining` are set when more follow."""

    version: int
    items: Sequence[Object]
    continue_token: ContinueToken | None = None
    remaining_count: int = 0


@dataclass(frozen=True, slots=True)
class ListSnapshot:
    """All objects of one kind at one version, by reference, in the order of their keys."""

    version: int
    keys: Sequence[str]
    items: Sequence[Object]

    @classmethod
    def from_objects(cls, version: int, objects: Mapping[str, Object]) -> Self:
        keys = sorted(objects)
        return cls(version, keys, [objects[key] for key in keys])

    def read_page(self, prefix: str, *, limit: int, start: str, selector: ObjectSelector) -> ObjectPage:
        """The objects whose key begins with `prefix`, from `start` on, that the selector matches."""
        first = bisect_left(self.keys, max(prefix, start))
        # The key range of a prefix ends before the prefix with its last character's successor.
        last = bisect_left(self.keys, prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else len(self.keys)
        if not selector.selects_everything:
            return self._read_selected_page(range(first, last), limit=limit, selector=selector)
        cut = min(first + limit, last) if limit > 0 else last
        if cut == last:
            return ObjectPage(self.version, self.items[first:last])
        return ObjectPage(self.version, self.items[first:cut], ContinueToken(self.version, self.keys[cut]), last - cut)

    def _read_selected_page(self, places: range, *, limit: int, selector: ObjectSelector) -> ObjectPage:
        """A page of matching objects, without the remaining count, as the rest was not matched."""
        found = [place for place in places if selector.matches(self.items[place])]
        if not limit or len(found) <= limit:
            return ObjectPage(self.version, [self.items[place] for place in found])
        items = [self.items[place] for place in found[:limit]]
        return ObjectPage(self.version, items, ContinueToken(self.version, self.keys[found[limit]]))
